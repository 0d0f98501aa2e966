// SPDX-License-Identifier: Apache-2.0
#include "train/token_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr char kMagic[8] = {'Q', 'K', 'V', 'T', 'O', 'K', 'E', 'N'};
constexpr std::size_t kHeader = sizeof(TokenFileHeader);

std::uint64_t xxh3(const void* data, std::size_t size) {
  Checksum checksum;
  checksum.add(data, size);
  return checksum.value();
}

std::uint64_t header_checksum(const TokenFileHeader& header) {
  return xxh3(&header, offsetof(TokenFileHeader, header_checksum));
}

void check_version(const MappedFile& file, const TokenFileHeader& header) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    throw FileError(file.path(), 0, "not a token file (does not start with QKVTOKEN)");
  if (header.version != 1 && header.version != 2)
    throw FileError(file.path(), 8, "expected version 1 or 2; found " + std::to_string(header.version));
  if (header.version == 2 && header.header_checksum != header_checksum(header))
    throw FileError(file.path(), 120, "header checksum mismatch: the file is damaged");
}

template <class T>
std::int64_t first_outside(const std::byte* data, std::size_t count, std::uint64_t vocab_size) {
  for (std::size_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, data + i * sizeof token, sizeof token);
    if (token >= vocab_size) return static_cast<std::int64_t>(i);
  }
  return -1;
}

}  // namespace

void BlockChecksum::add(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const std::size_t part = std::min(size, kBlock - in_block_);
    block_.add(bytes, part);
    bytes += part;
    size -= part;
    in_block_ += part;
    if (in_block_ < kBlock) return;
    blocks_.push_back(block_.value());
    block_ = Checksum();
    in_block_ = 0;
  }
}

std::uint64_t BlockChecksum::value() const {
  std::vector<std::uint64_t> blocks = blocks_;
  if (in_block_ > 0) blocks.push_back(block_.value());
  return of_blocks(blocks);
}

std::uint64_t BlockChecksum::of_blocks(std::span<const std::uint64_t> blocks) {
  return xxh3(blocks.data(), blocks.size_bytes());
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocab_size)
    : width_(token_width(vocab_size)), file_(path) {
  const TokenFileHeader none{};  // placeholder; the file is not valid until commit()
  file_.write(&none, sizeof none);
}

void TokenFileWriter::append(std::span<const std::uint8_t> packed) {
  file_.write(packed.data(), packed.size());
  checksum_.add(packed.data(), packed.size());
  tokens_ += static_cast<std::int64_t>(packed.size()) / width_;
}

void TokenFileWriter::commit(TokenFileHeader header, const std::string& tokenizer_json) {
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = 2;
  header.width = static_cast<std::uint32_t>(width_);
  header.token_checksum = checksum_.value();
  header.tokenizer_bytes = tokenizer_json.size();
  header.tokenizer_checksum = xxh3(tokenizer_json.data(), tokenizer_json.size());
  header.header_checksum = header_checksum(header);
  file_.write(tokenizer_json);
  file_.overwrite(0, &header, sizeof header);
  file_.commit();
}

TokenFileHeader read_token_file_header(const MappedFile& file) {
  const auto fail = [&](std::int64_t at, const std::string& what) { throw FileError(file.path(), at, what); };
  TokenFileHeader header;
  if (file.size() < kHeader)
    fail(-1, "expected a token file's header of 128 bytes; found " + std::to_string(file.size()));
  std::memcpy(&header, file.data(), kHeader);
  check_version(file, header);
  if (header.version == 1) {
    header.end_token = -1;
    header.documents = header.cut = header.tokenizer_bytes = 0;
  }
  if (header.width != 2 && header.width != 4)
    fail(12, "expected 2 or 4 bytes per token; found " + std::to_string(header.width));
  if (header.vocab_size == 0 || header.vocab_size > std::uint64_t{std::numeric_limits<std::int32_t>::max()})
    fail(16, "expected a vocabulary size of 1 to 2147483647; found " + std::to_string(header.vocab_size));
  const std::uint64_t rest = file.size() - kHeader;
  if (header.tokenizer_bytes > rest) fail(96, "the tokenizer does not fit in the file");
  const std::uint64_t tokens = (rest - header.tokenizer_bytes) / header.width;
  if (header.training_tokens > tokens || header.validation_tokens != tokens - header.training_tokens ||
      (rest - header.tokenizer_bytes) % header.width != 0) {
    fail(40, "the token counts do not fit the file size");
  }
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (header.training_bytes > kMax || header.validation_bytes > kMax) fail(56, "the numbers of bytes are out of range");
  if (header.end_token < -1 || header.end_token >= static_cast<std::int64_t>(header.vocab_size))
    fail(72, "expected an end token in the vocabulary, or -1; found " + std::to_string(header.end_token));
  const std::byte* const tokenizer = file.data() + file.size() - header.tokenizer_bytes;
  if (header.tokenizer_bytes > 0 && xxh3(tokenizer, header.tokenizer_bytes) != header.tokenizer_checksum)
    fail(104, "tokenizer checksum mismatch: the file is damaged");
  return header;
}

void verify_tokens(const MappedFile& file, const TokenFileHeader& header) {
  const std::size_t size = header.tokens() * header.width, block = BlockChecksum::kBlock;
  std::vector<std::uint64_t> sums((size + block - 1) / block);
  std::atomic<std::int64_t> bad = std::numeric_limits<std::int64_t>::max();  // the first token outside the vocabulary
  parallel_for(static_cast<std::int64_t>(sums.size()), [&](std::int64_t i) {
    const std::size_t at = static_cast<std::size_t>(i) * block, bytes = std::min(block, size - at);
    const std::byte* const data = file.data() + kHeader + at;
    sums[static_cast<std::size_t>(i)] = xxh3(data, bytes);
    const std::int64_t found = header.width == 2 ? first_outside<std::uint16_t>(data, bytes / 2, header.vocab_size)
                                                 : first_outside<std::uint32_t>(data, bytes / 4, header.vocab_size);
    if (found >= 0) {
      const std::int64_t token = static_cast<std::int64_t>(at / header.width) + found;
      for (std::int64_t first = bad; token < first && !bad.compare_exchange_weak(first, token);) continue;
    }
    file.release(kHeader + at, bytes);
  });
  const std::uint64_t sum = header.version == 2 ? BlockChecksum::of_blocks(sums) : xxh3(file.data() + kHeader, size);
  if (sum != header.token_checksum) throw FileError(file.path(), 32, "token checksum mismatch: the file is damaged");
  if (bad != std::numeric_limits<std::int64_t>::max()) {
    throw FileError(file.path(), static_cast<std::int64_t>(kHeader) + bad * header.width,
                    "a token outside the vocabulary");
  }
}

}  // namespace qkv
