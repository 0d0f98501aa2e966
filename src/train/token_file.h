// SPDX-License-Identifier: Apache-2.0
// tokens.bin, little-endian (docs/formats.md):
//   0  "QKVTOKEN"           8  u32 version = 2          12  u32 bytes per token, 2 or 4
//  16  u64 vocab_size      24  u64 checksum of the text (Corpus::checksum)
//  32  u64 checksum of the tokens: XXH3 of the XXH3s of each 4 MiB of them
//  40  u64 training tokens 48  u64 validation tokens    56  u64 bytes of training text, 64  of validation text
//  72  i64 end token, -1 for none                       80  u64 documents
//  88  u64 bytes of the files before the validation part
//  96  u64 bytes of the tokenizer  104  u64 its XXH3    112  zero     120  u64 XXH3 of bytes 0 to 119
// 128  training tokens, validation tokens, the tokenizer as the text of a tokenizer.json; the file ends there
// Version 1 ended with the tokens, had zeros from byte 72 on, and one XXH3 of all tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "os/atomic_file.h"
#include "os/mapped_file.h"
#include "train/checksum.h"

namespace qkv {

struct TokenFileHeader {
  char magic[8];
  std::uint32_t version, width;
  std::uint64_t vocab_size, source_checksum, token_checksum;
  std::uint64_t training_tokens, validation_tokens, training_bytes, validation_bytes;
  std::int64_t end_token;
  std::uint64_t documents, cut;
  std::uint64_t tokenizer_bytes, tokenizer_checksum, zero, header_checksum;

  std::uint64_t tokens() const noexcept { return training_tokens + validation_tokens; }
};
static_assert(sizeof(TokenFileHeader) == 128);

inline int token_width(std::int64_t vocab_size) noexcept { return vocab_size <= 65536 ? 2 : 4; }

// Incremental checksum: XXH3 of the XXH3s of each 4 MiB.
class BlockChecksum {
 public:
  static constexpr std::size_t kBlock = std::size_t{4} << 20;
  void add(const void* data, std::size_t size);
  std::uint64_t value() const;
  static std::uint64_t of_blocks(std::span<const std::uint64_t> blocks);

 private:
  Checksum block_;
  std::size_t in_block_ = 0;
  std::vector<std::uint64_t> blocks_;
};

// Writes a token file sequentially, in little memory.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& path, std::int64_t vocab_size);
  int width() const noexcept { return width_; }
  std::int64_t tokens() const noexcept { return tokens_; }
  void append(std::span<const std::uint8_t> packed);  // tokens of width() bytes each
  // The writer sets magic, version, width, and checksums of tokens, tokenizer and header; `header` has the rest.
  void commit(TokenFileHeader header, const std::string& tokenizer_json);

 private:
  int width_;
  AtomicFile file_;
  BlockChecksum checksum_;
  std::int64_t tokens_ = 0;
};

// Throws qkv::FileError if the file is invalid. verify_tokens reads all tokens, on all threads.
TokenFileHeader read_token_file_header(const MappedFile& file);
void verify_tokens(const MappedFile& file, const TokenFileHeader& header);

}  // namespace qkv
