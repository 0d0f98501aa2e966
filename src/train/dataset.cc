// SPDX-License-Identifier: Apache-2.0
// Token files, and the mapping of a run's sequences to their tokens. The order within an epoch is a permutation that
// can be evaluated at any single index: a Feistel network over the next even number of bits, iterated until the result
// is in range (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). So nothing is stored, and resuming
// needs only a sequence number.
#include "qkv/dataset.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "core/random.h"
#include "os/input_file.h"
#include "os/mapped_file.h"
#include "qkv/error.h"
#include "train/token_file.h"

namespace qkv {
namespace {

// Streams of the run's seed used for data; epochs are counted within each.
constexpr std::uint64_t kOrderStream = 0x6461746100000000u;   // "data"
constexpr std::uint64_t kOffsetStream = 0x7068617300000000u;  // "phas"

// The position of element `index` of [0, count) in the order for (seed, epoch).
std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  if (count <= 1) return 0;
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const Random random(seed, kOrderStream + epoch);
  std::uint64_t x = index;
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t mixed = left ^ (random.bits(round << 48 | right) & mask);
      left = right;
      right = mixed;
    }
    x = left << half | right;
  } while (x >= count);
  return x;
}

template <class T>
void widen_tokens(const void* data, std::int64_t start, std::int64_t count, std::int32_t* to) {
  const T* from = static_cast<const T*>(data) + start;
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::int32_t>(from[i]);
}

void copy_tokens(const void* data, int width, std::int64_t start, std::int64_t count, std::int32_t* to) {
  if (width == 2) {
    widen_tokens<std::uint16_t>(data, start, count, to);
  } else {
    widen_tokens<std::uint32_t>(data, start, count, to);
  }
}

}  // namespace

TokenDataset TokenDataset::open(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const TokenFileHeader header = read_token_file_header(*file);
  verify_tokens(*file, header);
  const auto width = static_cast<int>(header.width);
  const std::byte* const training = file->data() + sizeof header;
  const std::byte* const validation = training + header.training_tokens * header.width;
  TokenDataset data;
  data.training_ = TokenPart(training, width, static_cast<std::int64_t>(header.training_tokens),
                             static_cast<std::int64_t>(header.training_bytes));
  data.validation_ = TokenPart(validation, width, static_cast<std::int64_t>(header.validation_tokens),
                               static_cast<std::int64_t>(header.validation_bytes));
  data.vocab_size_ = static_cast<std::int64_t>(header.vocab_size);
  data.end_token_ = static_cast<std::int32_t>(header.end_token);
  data.documents_ = static_cast<std::int64_t>(header.documents);
  data.cut_ = static_cast<std::int64_t>(header.cut);
  data.source_checksum_ = header.source_checksum;
  data.checksum_ = header.token_checksum;
  data.path_ = path;
  const std::byte* const tokenizer = file->data() + file->size() - header.tokenizer_bytes;
  data.tokenizer_json_.assign(reinterpret_cast<const char*>(tokenizer), header.tokenizer_bytes);
  data.owner_ = std::move(file);
  return data;
}

bool TokenDataset::is_token_file(const std::string& path) {
  if (is_stream(path)) return false;  // checking would consume its bytes
  try {
    char magic[8] = {};
    return InputFile(path).read(0, magic) == sizeof magic && std::memcmp(magic, "QKVTOKEN", sizeof magic) == 0;
  } catch (const FileError&) {
    return false;
  }
}

TokenDataset TokenDataset::from_tokens(const std::vector<std::int32_t>& training,
                                       const std::vector<std::int32_t>& validation, std::int64_t vocab_size) {
  auto held = std::make_shared<std::vector<std::int32_t>>(training);
  held->insert(held->end(), validation.begin(), validation.end());
  for (const std::int32_t id : *held) {
    if (id < 0 || id >= vocab_size) {
      throw std::invalid_argument("[dataset] expected token ids in [0, " + std::to_string(vocab_size) + "); found " +
                                  std::to_string(id));
    }
  }
  TokenDataset data;
  const auto count = [](const std::vector<std::int32_t>& v) { return static_cast<std::int64_t>(v.size()); };
  data.training_ = TokenPart(held->data(), 4, count(training), count(training));
  data.validation_ = TokenPart(held->data() + training.size(), 4, count(validation), count(validation));
  data.vocab_size_ = vocab_size;
  BlockChecksum checksum;
  checksum.add(held->data(), held->size() * sizeof(std::int32_t));
  data.checksum_ = checksum.value();
  data.owner_ = std::move(held);
  return data;
}

std::optional<Tokenizer> TokenDataset::tokenizer() const {
  if (tokenizer_json_.empty()) return std::nullopt;
  return Tokenizer::from_json(path_, tokenizer_json_);
}

void TokenPart::read(std::int64_t start, std::span<std::int32_t> to) const {
  const auto count = static_cast<std::int64_t>(to.size());
  if (start < 0 || count > size_ || start > size_ - count) {
    throw std::invalid_argument("[dataset] expected tokens within [0, " + std::to_string(size_) + "); found " +
                                std::to_string(count) + " from " + std::to_string(start));
  }
  copy_tokens(data_, width_, start, count, to.data());
}

void TokenPart::read_window(std::int64_t start, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  if (start < 0 || start >= size_ - 1 || tokens.size() != targets.size()) {
    throw std::invalid_argument("[dataset] expected a window that starts in [0, " + std::to_string(size_ - 1) +
                                ") with as many targets as tokens; found start " + std::to_string(start) + ", " +
                                std::to_string(tokens.size()) + " and " + std::to_string(targets.size()));
  }
  const auto ctx = static_cast<std::int64_t>(tokens.size());
  const std::int64_t whole = std::min(ctx, size_ - 1 - start);
  copy_tokens(data_, width_, start, whole, tokens.data());
  copy_tokens(data_, width_, start + 1, whole, targets.data());
  std::fill(tokens.begin() + whole, tokens.end(), 0);
  std::fill(targets.begin() + whole, targets.end(), -1);
}

// If the part contains two windows, an epoch can start anywhere in the first ctx tokens; the tokens left out at the two
// ends, fewer than two windows, vary from epoch to epoch.
std::int64_t TokenPart::windows_per_epoch(std::int64_t ctx) const noexcept {
  if (size_ <= ctx || ctx < 1) return 0;
  const std::int64_t whole = (size_ - 1) / ctx;
  return whole >= 2 ? whole - 1 : 1;
}

std::int64_t TokenPart::window_start(std::int64_t ctx, std::uint64_t seed, std::int64_t sequence) const {
  const std::int64_t count = windows_per_epoch(ctx);
  if (count == 0 || sequence < 0) {
    throw std::invalid_argument("[dataset] expected at least " + std::to_string(ctx + 1) +
                                " tokens, one window of context " + std::to_string(ctx) +
                                " and the token after it; found " + std::to_string(size_));
  }
  const auto epoch = static_cast<std::uint64_t>(sequence / count);
  const auto place = static_cast<std::uint64_t>(sequence % count);
  const std::int64_t room = std::min(ctx, size_ - count * ctx);  // possible start positions of an epoch
  const auto offset = Random(seed, kOffsetStream).below(epoch, static_cast<std::uint64_t>(room));
  const std::uint64_t window = permuted(place, static_cast<std::uint64_t>(count), seed, epoch);
  return static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(window) * ctx;
}

}  // namespace qkv
