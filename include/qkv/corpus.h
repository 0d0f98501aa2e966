// SPDX-License-Identifier: Apache-2.0
// Text for training, of any size: files, directories of files, lines of JSON, standard input; split into a training and
// a validation part, and read a piece at a time.
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
  by_name,     // lines of JSON in files named .jsonl or .ndjson, plain text in all others
  plain,       // a file is a document
  json_lines,  // a line is a JSON object, and one of its fields a document
};
enum class CorpusPart : std::uint8_t { training, validation, all };

struct CorpusOptions {
  double validation_fraction = 0.1;  // of the bytes, at the end
  TextFormat format = TextFormat::by_name;
  std::string field = "text";       // of each line of JSON
  std::string stream_folder = ".";  // where standard input and pipes are put aside, in a file without a name
};

// Files joined in the given order, cut once: the last `validation_fraction` of the bytes is the validation part. In
// plain text the cut moves forward to the next start of a line if one is within 4 KB, else past the character it would
// split; among lines of JSON to the next line. With TextFormat::plain any bytes are text, NUL and invalid UTF-8 too.
// Immutable, cheap to copy, and any number of threads may read one; memory does not grow with the files.
class Corpus {
 public:
  struct Files;  // src/train/corpus_files.h

  // paths: files; directories, which mean all files below them in the order of their paths, without those that are
  // empty or whose name (or a folder's) begins with a dot; "-" for standard input. Pipes are read to their end first.
  // Files below a directory that are not text (compressed, NUL bytes or more than 2 % invalid UTF-8 in their first 64
  // KB), and symbolic links out of it, are left out and listed by skipped(). Throws qkv::FileError for what is missing,
  // unreadable, empty or compressed, for a named file that is not text (unless TextFormat::plain), and
  // std::invalid_argument for a fraction outside [0, 1) or for no paths.
  static Corpus read(const std::vector<std::string>& paths, const CorpusOptions& options = {});
  // The same of a plain text in memory, which is copied.
  static Corpus from_text(std::string text, double validation_fraction = 0.1);

  struct Skipped {
    std::string path, reason;
  };
  const std::vector<Skipped>& skipped() const noexcept;  // in the order of the paths
  std::int64_t file_count() const noexcept;
  const std::string& file_name(std::int64_t i) const;                    // as messages name it
  std::int64_t bytes(CorpusPart part = CorpusPart::all) const noexcept;  // of the files; JSON's own signs count too
  // XXH3 of the files' sizes and bytes. Reads them all.
  std::uint64_t checksum() const;

  // Calls take(text, begins) for one stretch of text after another, each at most 8 MB (a line of JSON: 64 MB); `begins`
  // where it is the beginning of a document. A stretch ends with its document or after a newline between two characters
  // that are no blanks, where every known pre-tokenizer splits (8 MB without one are cut past a character). Empty
  // documents are left out. take returns whether to go on. Throws qkv::FileError for a line that is not a JSON object
  // with the field as a string, or a file that has changed; blank lines are nothing.
  void read_text(CorpusPart part, const std::function<bool(std::string_view text, bool begins)>& take) const;

 private:
  friend class ChunkReader;
  Corpus(std::shared_ptr<const Files> files, double validation_fraction);

  std::shared_ptr<const Files> files_;
  std::int64_t cut_ = 0;  // where the validation part begins in the joined files
};

// Byte-level BPE learnt from the training part, on all threads; see Tokenizer::train_bpe. Its memory is bounded: past 4
// million distinct pieces, or 64 MB of them, the rarest are forgotten. Each report may be empty.
struct LearnProgress {
  std::function<void(std::int64_t bytes, std::int64_t total)> on_text;    // counting pieces
  std::function<void(std::int64_t tokens, std::int64_t total)> on_token;  // then merging pairs
};
Tokenizer learn_bpe(const Corpus& corpus, std::int64_t size, const LearnProgress& progress = {});

}  // namespace qkv
