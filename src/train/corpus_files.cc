// SPDX-License-Identifier: Apache-2.0
#include "train/corpus_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <stdexcept>

#include "qkv/error.h"
#include "text/utf8.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

bool is_json_lines(const std::string& path, TextFormat format) {
  if (format != TextFormat::by_name) return format == TextFormat::json_lines;
  const std::string extension = fs::path(path).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

// Whether nearly every second byte, even or odd, is NUL: ASCII as UTF-16.
bool utf16_without_mark(std::string_view sample) {
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < sample.size(); ++i) zeros[i % 2] += sample[i] == '\0' ? 1 : 0;
  const std::size_t pairs = sample.size() / 2;
  return pairs > 0 && std::max(zeros[0], zeros[1]) > pairs * 9 / 10 && std::min(zeros[0], zeros[1]) == 0;
}

// Why a file is not usable as training text; "" if it is.
std::string not_text(const std::string& path, const InputFile& file, TextFormat format) {
  constexpr std::size_t kSample = 64 << 10;
  constexpr double kMaxInvalid = 0.02;  // share of the sample's bytes: large texts often have stray bytes
  constexpr const char* kCompressed = "is compressed; decompress it, or pipe it and pass -";
  for (const char* extension : {".gz", ".xz", ".zst", ".bz2", ".zip", ".7z"})
    if (path.ends_with(extension)) return kCompressed;
  std::string sample(static_cast<std::size_t>(std::min<std::int64_t>(kSample, file.size())), '\0');
  sample.resize(file.read(0, sample));
  if (sample.starts_with("QKVTOKEN")) return "is a token file, not text";
  if (format == TextFormat::plain) return {};
  using namespace std::string_view_literals;
  if (sample.starts_with("PAR1") || path.ends_with(".parquet"))
    return "is a Parquet file; convert it to JSON lines or text";
  if (sample.starts_with("\xFF\xFE") || sample.starts_with("\xFE\xFF") || utf16_without_mark(sample))
    return "is UTF-16 text; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)";
  for (const std::string_view magic : {"\x1F\x8B"sv, "\x28\xB5\x2F\xFD"sv,
                                       "\xFD"
                                       "7zXZ\0"sv,
                                       "PK\x03\x04"sv})
    if (sample.starts_with(magic)) return kCompressed;
  if (is_json_lines(path, format)) return {};  // lines are checked when they are read
  if (sample.find('\0') != std::string::npos)
    return "is not text: it contains NUL bytes (--format text accepts any bytes)";
  std::size_t invalid = 0;
  for (std::size_t at = 0; at < sample.size();) {
    const Utf8Step step = utf8_step(std::string_view(sample).substr(at));  // the last character may be cut
    if (step.kind == Utf8Step::invalid) invalid += step.length;
    at += step.length;
  }
  const double share = static_cast<double>(invalid) / static_cast<double>(std::max<std::size_t>(1, sample.size()));
  if (share <= kMaxInvalid) return {};
  return "is not text: " + std::to_string(std::lround(100 * share)) +
         " % of its bytes are not UTF-8 (--format text accepts any bytes)";
}

// Whether a link below a directory points outside it.
bool leads_out(const fs::directory_entry& entry, const fs::path& root) {
  std::error_code error;
  if (!entry.is_symlink(error)) return false;
  const fs::path target = fs::canonical(entry.path(), error);
  if (error) return true;
  const auto [end, ignored] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  return end != root.end();
}

// All files below a directory, sorted by path bytes.
std::vector<std::string> files_below(const std::string& directory, std::vector<Corpus::Skipped>& skipped) {
  std::vector<std::string> found;
  std::error_code no_root;
  const fs::path root = fs::canonical(directory, no_root);
  std::error_code error;
  fs::recursive_directory_iterator entry(directory, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with(".");
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (hidden || !entry->is_regular_file() || entry->file_size() == 0) continue;
    if (leads_out(*entry, root))
      skipped.push_back({entry->path().string(), "is a link to outside the directory"});
    else
      found.push_back(entry->path().string());
  }
  if (error) throw FileError(directory, "cannot be read: " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

void BadLines::set(std::int64_t at, std::int64_t count, const std::string& error) {
  const std::lock_guard lock(mutex_);
  const auto place = chunks_.insert_or_assign(at, std::pair(count, error)).first;
  for (auto other = chunks_.begin(); other != chunks_.end(); ++other)  // only the first one's is shown
    if (other != chunks_.begin() && (other == place || std::prev(other) == chunks_.begin()))
      other->second.second.clear();
}

std::int64_t BadLines::count() const {
  const std::lock_guard lock(mutex_);
  std::int64_t count = 0;
  for (const auto& [at, chunk] : chunks_) count += chunk.first;
  return count;
}

std::string BadLines::first() const {
  const std::lock_guard lock(mutex_);
  return chunks_.empty() ? "" : chunks_.begin()->second.second;
}

void Corpus::Files::add(CorpusFile file) {
  if (file.size == 0) throw FileError(file.name, "is empty");
  file.begin = bytes;
  bytes += file.size;
  files.push_back(std::move(file));
}

Corpus::Files list_corpus_files(const std::vector<std::string>& paths, const CorpusOptions& options) {
  if (paths.empty()) throw std::invalid_argument("[corpus] expected at least one file; found none");
  Corpus::Files list;
  list.rules = {options.field, options.document_separator,
                options.skip_bad_lines ? std::make_shared<BadLines>() : nullptr};
  // Returns why the file is not added; "" if it is.
  const auto add_file = [&](const std::string& path) {
    const InputFile file(path);
    std::string reason = not_text(path, file, options.format);
    if (reason.empty()) list.add({path, 0, file.size(), is_json_lines(path, options.format), {}, {}});
    return reason;
  };
  for (const std::string& path : paths) {
    if (is_stream(path)) {
      CorpusFile file;
      file.aside = InputFile::spool(path, options.stream_folder);
      if (const std::string reason = not_text(path, *file.aside, options.format); !reason.empty())
        throw FileError(file.aside->path(), reason);
      file.name = file.aside->path();
      file.size = file.aside->size();
      file.json_lines = is_json_lines(path, options.format);
      list.add(std::move(file));
    } else if (fs::is_directory(path)) {
      const std::size_t before = list.files.size();
      for (const std::string& file : files_below(path, list.skipped))
        if (std::string reason = add_file(file); !reason.empty()) list.skipped.push_back({file, std::move(reason)});
      if (list.files.size() == before) throw FileError(path, "directory contains no text files");
    } else if (const std::string reason = add_file(path); !reason.empty()) {
      throw FileError(path, reason);
    }
  }
  std::sort(list.skipped.begin(), list.skipped.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
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
  if (file.read(at, to) < to.size()) throw FileError(file_.name, "was truncated while being read");
}

}  // namespace qkv
