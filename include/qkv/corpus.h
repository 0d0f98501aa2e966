// SPDX-License-Identifier: Apache-2.0
// Training text of any size: files, directories, JSON Lines, standard input; split into training and validation, and
// read in pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"

namespace qkv {

enum class TextFormat : std::uint8_t {
  by_name,     // JSON Lines for files named .jsonl or .ndjson, plain text for all others
  plain,       // each file is a document
  json_lines,  // each line is a JSON object with a document in one field
};
enum class CorpusPart : std::uint8_t { training, validation, all };

struct CorpusOptions {
  double validation_fraction = 0.1;  // of the bytes, at the end
  TextFormat format = TextFormat::by_name;
  std::string field = "text";  // JSON Lines field
  // Text between the documents of a plain text file, e.g. "<|endoftext|>", together with the line end after it. Empty:
  // a file is one document.
  std::string document_separator = {};
  bool skip_bad_lines = false;      // JSON lines without a document are skipped and counted, not an error
  std::string stream_folder = ".";  // where standard input and pipes are buffered, in an unnamed file
};

// Files concatenated in the given order and split once: the last `validation_fraction` of the bytes is the validation
// split. In plain text the split point moves forward to the next line start if one is within 4 KB, else past the
// character it would split; in JSON Lines to the next line. With TextFormat::plain any bytes are text, including NUL
// and invalid UTF-8. Immutable, cheap to copy, thread-safe; memory does not grow with the files.
class Corpus {
 public:
  struct Files;  // src/train/corpus_files.h

  // paths: files; directories, meaning all files below them in path order, except empty files and names (or folders)
  // starting with a dot; "-" for standard input. Pipes are read to their end first. Files below a directory that are
  // not text (compressed, Parquet, UTF-16, or with NUL bytes or more than 2 % invalid UTF-8 in the first 64 KB), and
  // symbolic links out of it, are skipped and listed by skipped(). Throws qkv::FileError for a missing, unreadable,
  // empty or compressed file and for a named file that is not text (unless TextFormat::plain), and
  // std::invalid_argument for a fraction outside [0, 1) or no paths.
  static Corpus read(const std::vector<std::string>& paths, const CorpusOptions& options = {});
  // The same for plain text in memory, which is copied.
  static Corpus from_text(std::string text, double validation_fraction = 0.1);

  struct Skipped {
    std::string path, reason;
  };
  const std::vector<Skipped>& skipped() const noexcept;  // in path order
  // JSON lines skipped so far (CorpusOptions::skip_bad_lines), and the message of the first one.
  std::int64_t bad_lines() const;
  std::string first_bad_line() const;
  std::int64_t file_count() const noexcept;
  const std::string& file_name(std::int64_t i) const;                    // as in messages
  std::int64_t bytes(CorpusPart part = CorpusPart::all) const noexcept;  // of the files, including JSON syntax
  // XXH3 of the files' sizes and contents. Reads all files.
  std::uint64_t checksum() const;

  // Calls take(text, begins) for consecutive pieces of text of at most 8 MB each (a JSON line: 64 MB); `begins`: the
  // piece starts a document. A piece ends at the end of its document or after a newline between two non-blank
  // characters, where every known pre-tokenizer splits (if 8 MB contain none, after a complete character). Empty
  // documents and blank lines are skipped. take returns whether to continue. Throws qkv::FileError for a line that is
  // not a JSON object with a string in the field, or a file that has changed.
  void read_text(CorpusPart part, const std::function<bool(std::string_view text, bool begins)>& take) const;

 private:
  friend class ChunkReader;
  Corpus(std::shared_ptr<const Files> files, double validation_fraction);

  std::shared_ptr<const Files> files_;
  std::int64_t cut_ = 0;  // start of the validation split in the concatenated files
};

// Trains byte-level BPE on the training split, on all threads; see Tokenizer::train_bpe. Memory is bounded: above 4
// million distinct pieces, or 64 MB of them, the rarest are dropped. Each callback may be empty.
struct BpeProgress {
  std::function<void(std::int64_t bytes, std::int64_t total)> on_text;    // counting pieces
  std::function<void(std::int64_t tokens, std::int64_t total)> on_token;  // then merging pairs
};
Tokenizer train_bpe(const Corpus& corpus, std::int64_t size, const BpeProgress& progress = {});

}  // namespace qkv
