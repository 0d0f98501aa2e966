// SPDX-License-Identifier: Apache-2.0
#include "train/text_chunks.h"

#include <algorithm>

#include "qkv/error.h"
#include "train/json_lines.h"

namespace qkv {
namespace {

bool ascii_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Whether the character before or after a newline at `at` may be white space, including Unicode's: non-ASCII white
// space starts with the bytes C2, E1 or E2, or is E3 80 80.
bool blank_before(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t back) { return at >= back ? static_cast<unsigned char>(text[at - back]) : 0u; };
  return ascii_blank(text[at - 1]) || byte(2) == 0xC2 || byte(3) == 0xE1 || byte(3) == 0xE2 ||
         (byte(3) == 0xE3 && byte(2) == 0x80 && byte(1) == 0x80);
}
bool blank_after(std::string_view text, std::size_t at) noexcept {
  const auto lead = static_cast<unsigned char>(text[at + 1]);
  return ascii_blank(text[at + 1]) || lead == 0xC2 || lead == 0xE1 || lead == 0xE2 || lead == 0xE3;
}

// The end of the last complete character of a partial text.
std::size_t last_character_end(std::string_view text) noexcept {
  std::size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0u) == 0x80u) --start;
  return start > 0 ? start : text.size();
}

// The same of a plain text with separators: after the last separator that is read with its line end, else where no
// separator can be split.
std::size_t cut_between_documents(std::string_view bytes, std::string_view separator, const ChunkSizes& sizes) {
  const std::size_t unsure = separator.size() + 2;  // at the end of the bytes, where a separator may not be whole
  if (bytes.size() <= unsure) return 0;
  std::size_t after_last = 0;
  for (Separator next = find_separator(bytes, separator, 0);
       next.begin != std::string_view::npos && next.begin + unsure <= bytes.size();
       next = find_separator(bytes, separator, next.end))
    after_last = next.end;
  if (after_last > 0) return after_last;
  const std::string_view sure = bytes.substr(0, bytes.size() - unsure);
  if (const std::size_t cut = last_cut(sure); cut > 0) return cut;
  return bytes.size() >= sizes.longest_text ? last_character_end(sure) : 0;
}

// Where a partly read file is cut; 0: more bytes are needed.
std::size_t cut_of(const CorpusFile& file, const TextRules& rules, std::int64_t at, std::string_view bytes,
                   const ChunkSizes& sizes) {
  if (file.json_lines) {
    const std::size_t newline = bytes.rfind('\n');
    if (newline != std::string_view::npos) return newline + 1;
    if (bytes.size() >= sizes.longest_line)
      throw FileError(
          file.name, at,
          "expected a line of JSON of at most " + std::to_string(sizes.longest_line) + " bytes; found a longer one");
    return 0;
  }
  if (!rules.separator.empty()) return cut_between_documents(bytes, rules.separator, sizes);
  const std::size_t cut = last_cut(bytes);
  return cut == 0 && bytes.size() >= sizes.longest_text ? last_character_end(bytes) : cut;
}

}  // namespace

std::size_t last_cut(std::string_view text) noexcept {
  for (std::size_t at = text.size(); at-- > 1;) {
    if (text[at] == '\n' && at + 1 < text.size() && !blank_before(text, at) && !blank_after(text, at)) return at + 1;
  }
  return 0;
}

Separator find_separator(std::string_view text, std::string_view separator, std::size_t from) noexcept {
  const std::size_t begin = text.find(separator, from);
  if (begin == std::string_view::npos) return {};
  std::size_t end = begin + separator.size();
  if (separator.ends_with('\n')) return {begin, end};
  if (text.substr(end).starts_with("\r\n"))
    end += 2;
  else if (text.substr(end).starts_with("\n"))
    end += 1;
  return {begin, end};
}

namespace {

// Number of the line at a position of a file, from 1. Reads the file up to there.
std::int64_t line_number(const CorpusFile& described, std::int64_t position) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  const OpenCorpusFile file(described);
  std::int64_t lines = 1;
  std::string block;
  for (std::int64_t at = 0; at < position; at += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, position - at)));
    file.read(at, block);
    lines += std::count(block.begin(), block.end(), '\n');
  }
  return lines;
}

void each_document(const TextChunk& chunk, const std::string& separator,
                   const std::function<void(std::string_view, bool)>& take) {
  const std::string_view all = chunk.bytes;
  bool begins = chunk.begins;
  for (std::size_t at = 0; at < all.size();) {
    const Separator next = separator.empty() ? Separator() : find_separator(all, separator, at);
    const std::string_view text = all.substr(at, std::min(next.begin, all.size()) - at);
    if (!text.empty()) take(text, begins);
    begins = true;
    at = next.begin == std::string::npos ? all.size() : next.end;
  }
}

}  // namespace

void each_text(const TextChunk& chunk, const TextRules& rules,
               const std::function<void(std::string_view, bool)>& take) {
  if (!chunk.file->json_lines) return each_document(chunk, rules.separator, take);
  std::int64_t bad = 0;
  std::string first;
  const auto refuse = [&](std::size_t at, const std::string& fault) {
    const std::int64_t position = chunk.at + static_cast<std::int64_t>(at);
    if (rules.passed && bad++ > 0) return;
    const FileError error(chunk.file->name, position,
                          "line " + std::to_string(line_number(*chunk.file, position)) + ": " + fault);
    if (!rules.passed) throw error;
    first = error.what();
  };
  each_json_line(
      chunk.bytes, rules.field,
      [&](std::string_view text) {
        if (!text.empty()) take(text, true);
      },
      refuse);
  if (bad > 0) rules.passed->set(chunk.file->begin + chunk.at, bad, first);
}

namespace {

bool ends_with_separator(std::string_view text, std::string_view separator) {
  if (separator.empty()) return false;
  for (Separator next = find_separator(text, separator, 0); next.begin != std::string_view::npos;
       next = find_separator(text, separator, next.end))
    if (next.end == text.size()) return true;
  return false;
}

}  // namespace

ChunkReader::ChunkReader(const Corpus& corpus, CorpusPart part, const ChunkSizes& sizes)
    : files_(corpus.files_),
      sizes_(sizes),
      begin_(part == CorpusPart::validation ? corpus.cut_ : 0),
      end_(part == CorpusPart::training ? corpus.cut_ : files_->bytes),
      at_(begin_) {
  const auto ends_before = [&](const CorpusFile& file) { return file.begin + file.size <= begin_; };
  while (file_ < files_->files.size() && ends_before(files_->files[file_])) ++file_;
}

bool ChunkReader::next(TextChunk& chunk) {
  if (at_ >= end_) return false;
  const CorpusFile& file = files_->files[file_];
  if (!open_) open_.emplace(file);
  chunk.file = &file;
  chunk.at = at_ - file.begin;
  chunk.begins = at_ == begin_ || at_ == file.begin || after_separator_;
  chunk.bytes.swap(carried_);
  carried_.clear();
  const auto rest = static_cast<std::size_t>(std::min(file.begin + file.size, end_) - at_);  // of the file
  for (std::size_t wanted = sizes_.chunk;; wanted *= 2) {
    const std::size_t have = chunk.bytes.size(), size = std::min(rest, std::max(wanted, have + sizes_.chunk / 2));
    chunk.bytes.resize(size);
    open_->read(chunk.at + static_cast<std::int64_t>(have), std::span(chunk.bytes).subspan(have));
    const std::size_t cut = size == rest ? rest : cut_of(file, files_->rules, chunk.at, chunk.bytes, sizes_);
    if (cut == 0) continue;
    carried_.assign(chunk.bytes, cut);
    chunk.bytes.resize(cut);
    break;
  }
  after_separator_ = ends_with_separator(chunk.bytes, files_->rules.separator);
  at_ += static_cast<std::int64_t>(chunk.bytes.size());
  if (at_ == file.begin + file.size) {
    open_.reset();
    ++file_;
  }
  return true;
}

}  // namespace qkv
