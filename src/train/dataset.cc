// SPDX-License-Identifier: Apache-2.0
// tokens.bin, little-endian (docs/formats.md):
//   0  "QKVTOKEN"    8  u32 version = 1     12  u32 bytes a token, 2 or 4
//  16  u64 vocab_size          24  u64 checksum of the sources      32  u64 checksum of the tokens (XXH3)
//  40  u64 training tokens     48  u64 validation tokens
//  56  u64 training bytes      64  u64 validation bytes             72 ... 127  zero
// 128  training tokens, then validation tokens; the file ends there
#include "qkv/dataset.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/parallel.h"
#include "os/atomic_file.h"
#include "os/mapped_file.h"
#include "qkv/error.h"
#include "qkv/threads.h"
#include "train/checksum.h"

namespace qkv {
namespace {

constexpr std::size_t kPiece = 256 * 1024;  // bytes of text handed to the tokenizer at once
constexpr char kMagic[8] = {'Q', 'K', 'V', 'T', 'O', 'K', 'E', 'N'};

struct Header {
  char magic[8];
  std::uint32_t version, width;
  std::uint64_t vocab_size, source_checksum, token_checksum;
  std::uint64_t training_tokens, validation_tokens, training_bytes, validation_bytes;
  std::uint64_t zero[7];
};
static_assert(sizeof(Header) == 128);

bool ascii_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Whether the character before or after a newline at `at` may be white space, in Unicode too: that outside ASCII starts
// with the bytes C2, E1 or E2, or is E3 80 80.
bool blank_before(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t back) { return at >= back ? static_cast<unsigned char>(text[at - back]) : 0u; };
  return ascii_blank(text[at - 1]) || byte(2) == 0xC2 || byte(3) == 0xE1 || byte(3) == 0xE2 ||
         (byte(3) == 0xE3 && byte(2) == 0x80 && byte(1) == 0x80);
}
bool blank_after(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at + 1]);
  return ascii_blank(text[at + 1]) || lead == 0xC2 || lead == 0xE1 || lead == 0xE2 ||
         text.substr(at + 1, 3) == "\xE3\x80\x80";
}

// The text in pieces; a piece ends after a newline that has no blank beside it, where every known pre-tokenizer splits.
std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (text.size() > kPiece) {
    std::size_t end = kPiece;
    const auto splits = [&] {
      return text[end - 1] == '\n' && !blank_before(text, end - 1) && !blank_after(text, end - 1);
    };
    while (end < text.size() && !splits()) ++end;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (!text.empty()) pieces.push_back(text);
  return pieces;
}

struct Encoded {
  std::vector<std::uint8_t> data;  // [tokens, width]
  std::int64_t tokens = 0;
};

void append(Encoded& to, const std::vector<std::int32_t>& ids, std::size_t width) {
  const std::size_t at = to.data.size();
  to.data.resize(at + ids.size() * width);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(ids[i]);
    std::memcpy(to.data.data() + at + i * width, &id, width);  // little-endian: the low bytes come first
  }
  to.tokens += static_cast<std::int64_t>(ids.size());
}

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, std::int64_t total, const TokenDataset::Progress& progress)
      : tokenizer_(tokenizer), total_(total), progress_(progress) {}

  std::size_t width() const { return tokenizer_.size() <= 65536 ? 2 : 4; }

  Encoded encode(const std::vector<std::string_view>& texts) {
    Encoded result;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && tokenizer_.end_token() >= 0) append(result, {tokenizer_.end_token()}, width());
      encode(texts[i], result);
    }
    return result;
  }

 private:
  // Some pieces a thread at a time, so that memory stays bounded and progress is told from this thread.
  void encode(std::string_view text, Encoded& to) {
    const auto pieces = pieces_of(text);
    const std::size_t wave = static_cast<std::size_t>(num_threads()) * 2;
    std::vector<std::vector<std::int32_t>> ids(wave);
    for (std::size_t first = 0; first < pieces.size(); first += wave) {
      const std::size_t count = std::min(wave, pieces.size() - first);
      parallel_for(static_cast<std::int64_t>(count), [&](std::int64_t i) {
        ids[static_cast<std::size_t>(i)] = tokenizer_.encode(pieces[first + static_cast<std::size_t>(i)]);
      });
      for (std::size_t i = 0; i < count; ++i) {
        append(to, ids[i], width());
        done_ += static_cast<std::int64_t>(pieces[first + i].size());
      }
      if (progress_) progress_(done_, total_);
    }
  }

  const Tokenizer& tokenizer_;
  std::int64_t total_, done_ = 0;
  const TokenDataset::Progress& progress_;
};

std::uint64_t checksum_of(const void* training, std::size_t training_size, const void* validation,
                          std::size_t validation_size) {
  Checksum checksum;
  checksum.add(training, training_size);
  checksum.add(validation, validation_size);
  return checksum.value();
}

Header read_header(const MappedFile& file) {
  const auto fail = [&](std::int64_t at, const std::string& what) -> void { throw FileError(file.path(), at, what); };
  Header header;
  if (file.size() < sizeof header)
    fail(-1, "expected a token file's header of 128 bytes; found " + std::to_string(file.size()));
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) fail(0, "not a token file (no QKVTOKEN at its start)");
  if (header.version != 1) fail(8, "expected version 1; found " + std::to_string(header.version));
  if (header.width != 2 && header.width != 4)
    fail(12, "expected 2 or 4 bytes a token; found " + std::to_string(header.width));
  if (header.vocab_size == 0 || header.vocab_size > std::uint64_t{std::numeric_limits<std::int32_t>::max()}) {
    fail(16, "expected a vocabulary of 1 to 2147483647; found " + std::to_string(header.vocab_size));
  }
  const std::uint64_t room = (file.size() - sizeof header) / header.width;
  if (header.training_tokens > room || header.validation_tokens != room - header.training_tokens ||
      (file.size() - sizeof header) % header.width != 0) {
    fail(40, "the numbers of tokens do not fit the file's size");
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (header.training_bytes > kMost || header.validation_bytes > kMost) fail(56, "impossible numbers of bytes");
  return header;
}

template <class T>
std::int64_t first_outside(const void* data, std::int64_t count, std::uint64_t vocab_size) {
  const T* tokens = static_cast<const T*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    if (tokens[i] >= vocab_size) return i;
  }
  return -1;
}

}  // namespace

TokenDataset TokenDataset::tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path,
                                    const Progress& progress) {
  Encoder encoder(tokenizer, corpus.training_bytes() + corpus.validation_bytes(), progress);
  const Encoded training = encoder.encode(corpus.training());
  const Encoded validation = encoder.encode(corpus.validation());
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = 1;
  header.width = static_cast<std::uint32_t>(encoder.width());
  header.vocab_size = static_cast<std::uint64_t>(tokenizer.size());
  header.source_checksum = corpus.checksum();
  header.token_checksum =
      checksum_of(training.data.data(), training.data.size(), validation.data.data(), validation.data.size());
  header.training_tokens = static_cast<std::uint64_t>(training.tokens);
  header.validation_tokens = static_cast<std::uint64_t>(validation.tokens);
  header.training_bytes = static_cast<std::uint64_t>(corpus.training_bytes());
  header.validation_bytes = static_cast<std::uint64_t>(corpus.validation_bytes());
  AtomicFile file(path);
  file.write(&header, sizeof header);
  file.write(training.data.data(), training.data.size());
  file.write(validation.data.data(), validation.data.size());
  file.commit();
  return open(path);
}

TokenDataset TokenDataset::open(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const Header header = read_header(*file);
  const auto width = static_cast<int>(header.width);
  const std::byte* const training = file->data() + sizeof header;
  const std::size_t training_size = header.training_tokens * header.width;
  const std::byte* const validation = training + training_size;
  if (checksum_of(training, training_size, validation, header.validation_tokens * header.width) !=
      header.token_checksum) {
    throw FileError(path, 32, "the tokens do not have the checksum written there: the file is damaged");
  }
  const auto tokens = static_cast<std::int64_t>(header.training_tokens + header.validation_tokens);
  const std::int64_t bad = width == 2 ? first_outside<std::uint16_t>(training, tokens, header.vocab_size)
                                      : first_outside<std::uint32_t>(training, tokens, header.vocab_size);
  if (bad >= 0) {
    throw FileError(path, static_cast<std::int64_t>(sizeof header) + bad * width, "a token outside the vocabulary");
  }
  TokenDataset data;
  data.training_ = TokenPart(training, width, static_cast<std::int64_t>(header.training_tokens),
                             static_cast<std::int64_t>(header.training_bytes));
  data.validation_ = TokenPart(validation, width, static_cast<std::int64_t>(header.validation_tokens),
                               static_cast<std::int64_t>(header.validation_bytes));
  data.vocab_size_ = static_cast<std::int64_t>(header.vocab_size);
  data.source_checksum_ = header.source_checksum;
  data.owner_ = std::move(file);
  return data;
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
  data.owner_ = std::move(held);
  return data;
}

}  // namespace qkv
