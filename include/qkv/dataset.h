// SPDX-License-Identifier: Apache-2.0
// Tokens for training: a corpus turned into tokens once, kept in a file, mapped and read as windows.
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

// The tokens of one part, two or four bytes each. A view: valid as long as its TokenDataset.
class TokenPart {
 public:
  TokenPart() = default;
  TokenPart(const void* data, int width, std::int64_t tokens, std::int64_t bytes)
      : data_(data), width_(width), size_(tokens), bytes_(bytes) {}

  std::int64_t size() const noexcept { return size_; }    // tokens
  std::int64_t bytes() const noexcept { return bytes_; }  // of the text they stand for
  // Tokens start ... start + to.size() - 1. Throws std::invalid_argument if the part does not hold them all.
  void read(std::int64_t start, std::span<std::int32_t> to) const;

  // How many windows of ctx + 1 tokens there are: one for each place where one can start, none if it is too short.
  std::int64_t window_count(std::int64_t ctx) const noexcept { return size_ > ctx ? size_ - ctx : 0; }
  // tokens = start ... start + ctx - 1, targets = the one after each. Both [ctx]. Where the part ends early, the rest
  // of tokens is 0 and the rest of targets -1 (ignored). Throws std::invalid_argument for a start outside
  // [0, size - 1).
  void read_window(std::int64_t start, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

  // Where sequence number `sequence` of a run starts: a pure function of its arguments. Sequences go through the part
  // an epoch at a time: in each epoch every token is seen once (up to the ends), in windows laid end to end from a
  // place that differs by epoch, in an order that differs by epoch. Throws std::invalid_argument if the part holds no
  // window.
  std::int64_t window_start(std::int64_t ctx, std::uint64_t seed, std::int64_t sequence) const;
  std::int64_t windows_per_epoch(std::int64_t ctx) const noexcept;

 private:
  const void* data_ = nullptr;
  int width_ = 4;
  std::int64_t size_ = 0, bytes_ = 0;
};

// Both parts as tokens; as a file it is mapped (layout: docs/formats.md, "tokens.bin"). Immutable; movable, cheap to
// copy.
class TokenDataset {
 public:
  // Told how many bytes of the corpus are done, of how many.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  // Turns the text into tokens and writes them, and the tokenizer, to `path`, atomically, on all threads; memory grows
  // with neither. Between two documents stands the end token, if the tokenizer has one; each begins with its begin
  // token, if it has one that differs. Throws qkv::FileError.
  static TokenDataset tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path,
                               const Progress& progress = {});
  // Throws qkv::FileError with what is wrong with the file. All of it is read once: checksums and token ids are
  // checked.
  static TokenDataset open(const std::string& path);
  // Whether the file begins as a token file does; false for what cannot be read.
  static bool is_token_file(const std::string& path);
  // Tokens in memory. Throws std::invalid_argument for an id outside [0, vocab_size).
  static TokenDataset from_tokens(const std::vector<std::int32_t>& training,
                                  const std::vector<std::int32_t>& validation, std::int64_t vocab_size);

  const TokenPart& training() const noexcept { return training_; }
  const TokenPart& validation() const noexcept { return validation_; }
  std::int64_t vocab_size() const noexcept { return vocab_size_; }
  std::int32_t end_token() const noexcept { return end_token_; }               // -1: none, or not known (version 1)
  std::int64_t document_count() const noexcept { return documents_; }          // 0: not known
  std::uint64_t source_checksum() const noexcept { return source_checksum_; }  // the corpus's
  std::int64_t cut() const noexcept { return cut_; }  // bytes of the corpus before the validation part; 0: not known
  std::uint64_t checksum() const noexcept { return checksum_; }  // of the tokens
  // The one the tokens were made with, from the file; none in version 1 and in memory. Throws qkv::FileError.
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
