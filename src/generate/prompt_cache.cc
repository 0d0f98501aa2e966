// SPDX-License-Identifier: Apache-2.0
// The file, little-endian: "QKVPROMP", u32 version 1, u32 0, u64 fingerprint, u64 number of tokens, u64 bytes of state;
// the tokens, i32 each; the state from ModelState::to_bytes(); u64 XXH3 of everything before it.
#include "qkv/prompt_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "generate/sequence.h"
#include "os/atomic_file.h"
#include "os/mapped_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

static_assert(std::endian::native == std::endian::little, "the file stores numbers in host byte order");

struct Header {
  std::array<char, 8> magic{'Q', 'K', 'V', 'P', 'R', 'O', 'M', 'P'};
  std::uint32_t version = 1, zero = 0;
  std::uint64_t fingerprint = 0, tokens = 0, state_bytes = 0;
};
static_assert(sizeof(Header) == 40, "no padding");
constexpr std::uint64_t kChecksumBytes = 8;

struct FreeHash {
  void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
};

// Hash of the logits after each of four tokens, with a cache of the compute dtype.
std::uint64_t fingerprint(Model& model) {
  const ModelConfig& c = model.config();
  std::vector<float> logits(static_cast<std::size_t>(c.vocab_size));  // [vocab_size]
  ModelState state = model.make_state();
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(4, c.ctx_len); ++i) {
    const auto token = static_cast<std::int32_t>((c.vocab_size - 1) * i / 3);
    model.decode({&token, 1}, state, logits);
    hash = XXH3_64bits_withSeed(logits.data(), logits.size() * sizeof(float), hash);
  }
  return hash;
}

Header checked_header(const std::string& path, std::span<const std::byte> file) {
  Header header;
  const Header expected;
  if (file.size() < sizeof header + kChecksumBytes)
    throw FileError(path, 0, "expected a prompt cache; found a file of " + std::to_string(file.size()) + " bytes");
  std::memcpy(&header, file.data(), sizeof header);
  if (header.magic != expected.magic) throw FileError(path, 0, "expected a prompt cache, which begins with QKVPROMP");
  if (header.version != expected.version || header.zero != 0)
    throw FileError(path, 8, "expected version 1; found " + std::to_string(header.version));
  const std::uint64_t rest = file.size() - sizeof header - kChecksumBytes;
  if (header.tokens > rest / 4 || header.state_bytes != rest - 4 * header.tokens)
    throw FileError(path, 24,
                    std::to_string(header.tokens) + " tokens and " + std::to_string(header.state_bytes) +
                        " bytes of keys and values do not match a file of " + std::to_string(file.size()) +
                        " bytes: it is damaged");
  std::uint64_t checksum = 0;
  const std::size_t end = file.size() - kChecksumBytes;
  std::memcpy(&checksum, file.data() + end, sizeof checksum);
  if (checksum != XXH3_64bits(file.data(), end))
    throw FileError(path, static_cast<std::int64_t>(end), "checksum mismatch: the file is damaged");
  return header;
}

std::vector<std::int32_t> checked_tokens(const std::string& path, const Header& header, std::span<const std::byte> file,
                                         const ModelConfig& config) {
  if (header.tokens > static_cast<std::uint64_t>(config.ctx_len))
    throw FileError(path, 24,
                    "expected at most ctx_len = " + std::to_string(config.ctx_len) + " tokens; found " +
                        std::to_string(header.tokens));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(header.tokens));
  if (!tokens.empty()) std::memcpy(tokens.data(), file.data() + sizeof header, 4 * tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= config.vocab_size)
      throw FileError(path, static_cast<std::int64_t>(sizeof header + 4 * i),
                      "the token " + std::to_string(tokens[i]) + " is outside the vocabulary");
  return tokens;
}

}  // namespace

std::int64_t prefill(Model& model, std::span<const std::int32_t> text, TextContext& context,
                     std::optional<DType> type) {
  check_text(model.config(), text, false);
  if (context.state.layers.empty()) context.state = type ? model.make_state(*type) : model.make_state();
  Prefix known{std::move(context.tokens), std::move(context.state), {}, 0};
  known.state.truncate(known.reusable(text));
  context = {{text.begin(), text.end()}, std::move(known.state)};
  const std::span<const std::int32_t> pending = text.subspan(static_cast<std::size_t>(context.state.size()));
  model.decode(pending, context.state, {});
  return static_cast<std::int64_t>(pending.size());
}

void save_prompt_cache(const std::string& path, Model& model, const TextContext& context) {
  const std::vector<std::byte> state = context.state.to_bytes();
  Header header;
  header.fingerprint = fingerprint(model);
  header.tokens = static_cast<std::uint64_t>(context.state.size());
  header.state_bytes = state.size();
  const std::unique_ptr<XXH3_state_t, FreeHash> hash(XXH3_createState());
  if (!hash) throw std::bad_alloc();
  XXH3_64bits_reset(hash.get());
  AtomicFile file(path);
  file.watch([&](const void* data, std::size_t size) { XXH3_64bits_update(hash.get(), data, size); });
  file.write(&header, sizeof header);
  file.write(context.tokens.data(), 4 * static_cast<std::size_t>(header.tokens));
  file.write(state.data(), state.size());
  const std::uint64_t checksum = XXH3_64bits_digest(hash.get());
  file.write(&checksum, sizeof checksum);
  file.commit();
}

void load_prompt_cache(const std::string& path, Model& model, TextContext& context) {
  const MappedFile mapped(path);
  const std::span<const std::byte> file = mapped.bytes();
  const Header header = checked_header(path, file);
  std::vector<std::int32_t> tokens = checked_tokens(path, header, file, model.config());
  if (header.fingerprint != fingerprint(model))
    throw FileError(path, 16, "was made with another model, compute dtype or kernels");
  ModelState state = context.state.layers.empty() ? model.make_state() : context.state;
  const std::size_t begin = sizeof header + 4 * tokens.size();
  try {
    state.from_bytes(file.subspan(begin, static_cast<std::size_t>(header.state_bytes)));
  } catch (const std::invalid_argument& error) {
    throw FileError(path, static_cast<std::int64_t>(begin), error.what());
  }
  if (state.size() != static_cast<std::int64_t>(tokens.size()))
    throw FileError(path, 24,
                    "expected keys and values of " + std::to_string(tokens.size()) + " tokens; found " +
                        std::to_string(state.size()));
  for (std::size_t layer = 0; layer < state.layers.size(); ++layer)
    if (!state.layers[layer].finite())
      throw FileError(path, static_cast<std::int64_t>(begin),
                      "the keys or values of layer " + std::to_string(layer) + " are not finite");
  context.state = std::move(state);
  context.tokens = std::move(tokens);
}

}  // namespace qkv
