// SPDX-License-Identifier: Apache-2.0
// The files of a corpus, as one contiguous sequence of bytes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/input_file.h"
#include "qkv/corpus.h"

namespace qkv {

struct CorpusFile {
  std::string name;                  // the path, or the name used in messages
  std::int64_t begin = 0, size = 0;  // offset and size in the joined files
  bool json_lines = false;
  std::optional<InputFile> aside;   // the content of a stream
  std::optional<std::string> held;  // text in memory
};

// Lines of JSON that were passed over. A corpus may be read several times; each chunk is counted once. Thread-safe.
class BadLines {
 public:
  // at: position of the chunk within the joined files; error: what is wrong with the first line
  void set(std::int64_t at, std::int64_t count, const std::string& error);
  std::int64_t count() const;
  std::string first() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::pair<std::int64_t, std::string>> chunks_;  // count, and of the first chunk the error
};

// How documents are found in the files.
struct TextRules {
  std::string field;                 // of each line of JSON
  std::string separator;             // between the documents of a plain text; empty: a file is a document
  std::shared_ptr<BadLines> passed;  // null: a bad line is an error
};

struct Corpus::Files {
  std::vector<CorpusFile> files;  // none is empty
  std::int64_t bytes = 0;
  TextRules rules;
  std::vector<Corpus::Skipped> skipped;

  void add(CorpusFile file);
};

// One of the files, opened. The CorpusFile must outlive it.
class OpenCorpusFile {
 public:
  explicit OpenCorpusFile(const CorpusFile& file);
  // Fills `to` from byte `at` of the file on. Throws qkv::FileError if the file was truncated.
  void read(std::int64_t at, std::span<char> to) const;

 private:
  const CorpusFile& file_;
  std::optional<InputFile> opened_;
};

// Throws the same errors as Corpus::read.
Corpus::Files list_corpus_files(const std::vector<std::string>& paths, const CorpusOptions& options);

}  // namespace qkv
