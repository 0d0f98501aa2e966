// SPDX-License-Identifier: Apache-2.0
// Training tokens: a corpus tokenized once, stored in a file, memory-mapped and read in windows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qkv/corpus.h"
#include "qkv/tokenizer.h"

namespace qkv {

// The tokens of one split, two or four bytes each. A view: valid as long as its TokenDataset.
class TokenPart {
 public:
  TokenPart() = default;
  TokenPart(const void* data, int width, std::int64_t tokens, std::int64_t bytes)
      : data_(data), width_(width), size_(tokens), bytes_(bytes) {}

  std::int64_t size() const noexcept { return size_; }    // tokens
  std::int64_t bytes() const noexcept { return bytes_; }  // of the text they encode
  // Tokens start ... start + to.size() - 1. Throws std::invalid_argument if that is out of range.
  void read(std::int64_t start, std::span<std::int32_t> to) const;

  // Number of windows of ctx + 1 tokens: one per possible start, 0 if the split is too short.
  std::int64_t window_count(std::int64_t ctx) const noexcept { return size_ > ctx ? size_ - ctx : 0; }
  // tokens = start ... start + ctx - 1, targets = the next token of each. Both [ctx]. If the split ends early, the rest
  // of tokens is 0 and the rest of targets -1 (ignored). Throws std::invalid_argument for a start outside [0, size -
  // 1).
  void read_window(std::int64_t start, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

  // Start of sequence number `sequence` of a run: a pure function of its arguments. In each epoch every token is seen
  // once (except near the ends), in consecutive windows whose offset and order differ by epoch. Throws
  // std::invalid_argument if the split is shorter than one window.
  std::int64_t window_start(std::int64_t ctx, std::uint64_t seed, std::int64_t sequence) const;
  std::int64_t windows_per_epoch(std::int64_t ctx) const noexcept;

 private:
  const void* data_ = nullptr;
  int width_ = 4;
  std::int64_t size_ = 0, bytes_ = 0;
};

// Both splits as tokens; memory-mapped if stored in a file (format: docs/formats.md, "tokens.bin"). Immutable; movable,
// cheap to copy.
class TokenDataset {
 public:
  // Called with the bytes of the corpus done so far and in total.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  // Tokenizes the text on all threads and writes the tokens and the tokenizer to `path`, atomically; memory does not
  // grow with the corpus. Documents are separated by the end token, if the tokenizer has one; each starts with the
  // begin token, if it has one that differs. Throws qkv::FileError.
  static TokenDataset tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path,
                               const Progress& progress = {});
  // Opens a token file. Reads all of it once to verify checksums and token ids. Throws qkv::FileError.
  static TokenDataset open(const std::string& path);
  // Whether the file starts like a token file; false if it cannot be read.
  static bool is_token_file(const std::string& path);
  // Tokens in memory. Throws std::invalid_argument for an id outside [0, vocab_size).
  static TokenDataset from_tokens(const std::vector<std::int32_t>& training,
                                  const std::vector<std::int32_t>& validation, std::int64_t vocab_size);

  const TokenPart& training() const noexcept { return training_; }
  const TokenPart& validation() const noexcept { return validation_; }
  std::int64_t vocab_size() const noexcept { return vocab_size_; }
  std::int32_t end_token() const noexcept { return end_token_; }               // -1: none, or unknown (version 1)
  std::int64_t document_count() const noexcept { return documents_; }          // 0: unknown
  std::uint64_t source_checksum() const noexcept { return source_checksum_; }  // of the corpus
  std::int64_t cut() const noexcept { return cut_; }  // bytes of the corpus before the validation split; 0: unknown
  std::uint64_t checksum() const noexcept { return checksum_; }  // of the tokens
  // The tokenizer that made the tokens, from the file; nullopt for version 1 and in-memory tokens. Throws
  // qkv::FileError.
  std::optional<Tokenizer> tokenizer() const;

 private:
  TokenDataset() = default;

  std::shared_ptr<const void> owner_;
  TokenPart training_, validation_;
  std::int64_t vocab_size_ = 0, documents_ = 0, cut_ = 0;
  std::int32_t end_token_ = -1;
  std::uint64_t source_checksum_ = 0, checksum_ = 0;
  std::string path_, tokenizer_json_;
};

}  // namespace qkv
