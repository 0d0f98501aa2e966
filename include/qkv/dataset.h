// SPDX-License-Identifier: Apache-2.0
// Text for training: split into a training and a validation part, turned into tokens once, read as windows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"

namespace qkv {

// Text files, joined in the given order, cut once: the last `validation_fraction` of the bytes is the validation part
// (the cut moves forward to the next start of a line if one is within 4 KB, else past the character it would split).
// Bytes are bytes: NUL and invalid UTF-8 are text too. Immutable, so any number of threads may read one.
class Corpus {
 public:
  // Files are mapped where they can be and read where not (pipes). Throws qkv::FileError for one that is missing,
  // unreadable or empty and std::invalid_argument for a fraction outside [0, 1).
  static Corpus read(const std::vector<std::string>& files, double validation_fraction = 0.1);
  // The same of a text in memory, which is copied.
  static Corpus from_text(std::string text, double validation_fraction = 0.1);

  // One piece a file; the file that the cut falls into has a piece in each part.
  const std::vector<std::string_view>& training() const noexcept { return training_; }
  const std::vector<std::string_view>& validation() const noexcept { return validation_; }
  std::int64_t training_bytes() const noexcept { return training_bytes_; }
  std::int64_t validation_bytes() const noexcept { return validation_bytes_; }
  std::uint64_t checksum() const noexcept { return checksum_; }  // XXH3 of the files' sizes and bytes
  // Calls use(text) with the training part as one text, which a tokenizer can be trained on: in place if it is one
  // piece, else a copy.
  void with_training_text(const std::function<void(std::string_view)>& use) const;

 private:
  Corpus(std::shared_ptr<const void> owner, const std::vector<std::string_view>& texts, double validation_fraction);

  std::shared_ptr<const void> owner_;
  std::vector<std::string_view> training_, validation_;
  std::int64_t training_bytes_ = 0, validation_bytes_ = 0;
  std::uint64_t checksum_ = 0;
};

// The tokens of one part, two or four bytes each. A view: valid as long as its TokenDataset.
class TokenPart {
 public:
  TokenPart() = default;
  TokenPart(const void* data, int width, std::int64_t tokens, std::int64_t bytes)
      : data_(data), width_(width), size_(tokens), bytes_(bytes) {}

  std::int64_t size() const noexcept { return size_; }    // tokens
  std::int64_t bytes() const noexcept { return bytes_; }  // of the text they stand for

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
  // Told how many bytes of text are done, of how many.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  // Turns the text into tokens and writes them to `path`, atomically; a file's end is marked with the end token, if
  // the tokenizer has one, when another file follows. Text is handed to the tokenizer in pieces of about 256 KB that
  // end at a newline between two non-blank characters, on all threads. Throws qkv::FileError.
  static TokenDataset tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& path,
                               const Progress& progress = {});
  // Throws qkv::FileError with what is wrong with the file. All token ids are checked.
  static TokenDataset open(const std::string& path);
  // Tokens in memory. Throws std::invalid_argument for an id outside [0, vocab_size).
  static TokenDataset from_tokens(const std::vector<std::int32_t>& training,
                                  const std::vector<std::int32_t>& validation, std::int64_t vocab_size);

  const TokenPart& training() const noexcept { return training_; }
  const TokenPart& validation() const noexcept { return validation_; }
  std::int64_t vocab_size() const noexcept { return vocab_size_; }
  std::uint64_t source_checksum() const noexcept { return source_checksum_; }  // the corpus's

 private:
  TokenDataset() = default;

  std::shared_ptr<const void> owner_;
  TokenPart training_, validation_;
  std::int64_t vocab_size_ = 0;
  std::uint64_t source_checksum_ = 0;
};

}  // namespace qkv
