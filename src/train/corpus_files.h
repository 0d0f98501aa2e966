// SPDX-License-Identifier: Apache-2.0
// The files of a corpus, as one contiguous sequence of bytes.
#pragma once

#include <optional>
#include <span>
#include <string>
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

struct Corpus::Files {
  std::vector<CorpusFile> files;  // none is empty
  std::int64_t bytes = 0;
  std::string field;
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
