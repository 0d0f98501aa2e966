// SPDX-License-Identifier: Apache-2.0
#include "train/corpus_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "qkv/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

bool is_json_lines(const std::string& path, TextFormat format) {
  if (format != TextFormat::by_name) return format == TextFormat::json_lines;
  const std::string extension = fs::path(path).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

// Files whose bytes are surely not the text that somebody means to train on.
void refuse_compressed(const std::string& path) {
  for (const char* extension : {".gz", ".xz", ".zst", ".bz2", ".zip", ".7z", ".parquet"})
    if (path.ends_with(extension))
      throw FileError(path, "is compressed; unpack it, or unpack it into a pipe and give -");
}

// Every file below a directory, by the bytes of its path.
std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator entry(directory, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with(".");
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file() && entry->file_size() > 0) found.push_back(entry->path().string());
  }
  if (error) throw FileError(directory, "cannot be read: " + error.message());
  if (found.empty()) throw FileError(directory, "is a directory without files that hold text");
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

void Corpus::Files::add(CorpusFile file) {
  if (file.size == 0) throw FileError(file.name, "is empty");
  file.begin = bytes;
  bytes += file.size;
  files.push_back(std::move(file));
}

Corpus::Files list_corpus_files(const std::vector<std::string>& paths, const CorpusOptions& options) {
  if (paths.empty()) throw std::invalid_argument("[corpus] expected at least one file; found none");
  Corpus::Files list;
  list.field = options.field;
  const auto add_file = [&](const std::string& path) {
    refuse_compressed(path);
    const InputFile file(path);
    char magic[8] = {};
    if (file.read(0, magic) == sizeof magic && std::memcmp(magic, "QKVTOKEN", sizeof magic) == 0)
      throw FileError(path, "is a token file, not text");
    list.add({path, 0, file.size(), is_json_lines(path, options.format), {}, {}});
  };
  for (const std::string& path : paths) {
    if (is_stream(path)) {
      CorpusFile file;
      file.aside = InputFile::put_aside(path, options.stream_folder);
      file.name = file.aside->path();
      file.size = file.aside->size();
      file.json_lines = is_json_lines(path, options.format);
      list.add(std::move(file));
    } else if (fs::is_directory(path)) {
      for (const std::string& file : files_below(path)) add_file(file);
    } else {
      add_file(path);
    }
  }
  return list;
}

OpenCorpusFile::OpenCorpusFile(const CorpusFile& file) : file_(file) {
  if (!file.held && !file.aside) opened_.emplace(file.name);
}

void OpenCorpusFile::read(std::int64_t at, std::span<char> to) const {
  if (file_.held) {
    std::memcpy(to.data(), file_.held->data() + at, to.size());
    return;
  }
  const InputFile& file = opened_ ? *opened_ : *file_.aside;
  if (file.read(at, to) < to.size()) throw FileError(file_.name, "has become shorter while it was read");
}

}  // namespace qkv
