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

// Where a partly read file is cut; 0: more bytes are needed.
std::size_t cut_of(const CorpusFile& file, std::int64_t at, std::string_view bytes, const ChunkSizes& sizes) {
  if (file.json_lines) {
    const std::size_t newline = bytes.rfind('\n');
    if (newline != std::string_view::npos) return newline + 1;
    if (bytes.size() >= sizes.longest_line)
      throw FileError(
          file.name, at,
          "expected a line of JSON of at most " + std::to_string(sizes.longest_line) + " bytes; found a longer one");
    return 0;
  }
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

void each_text(const TextChunk& chunk, const std::string& field,
               const std::function<void(std::string_view, bool)>& take) {
  if (!chunk.file->json_lines) return take(chunk.bytes, chunk.begins);
  each_json_line(chunk.bytes, field, {chunk.file->name, chunk.at}, [&](std::string_view text) {
    if (!text.empty()) take(text, true);
  });
}

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
  chunk.begins = at_ == begin_ || at_ == file.begin;
  chunk.bytes.swap(carried_);
  carried_.clear();
  const auto rest = static_cast<std::size_t>(std::min(file.begin + file.size, end_) - at_);  // of the file
  for (std::size_t wanted = sizes_.chunk;; wanted *= 2) {
    const std::size_t have = chunk.bytes.size(), size = std::min(rest, std::max(wanted, have + sizes_.chunk / 2));
    chunk.bytes.resize(size);
    open_->read(chunk.at + static_cast<std::int64_t>(have), std::span(chunk.bytes).subspan(have));
    const std::size_t cut = size == rest ? rest : cut_of(file, chunk.at, chunk.bytes, sizes_);
    if (cut == 0) continue;
    carried_.assign(chunk.bytes, cut);
    chunk.bytes.resize(cut);
    break;
  }
  at_ += static_cast<std::int64_t>(chunk.bytes.size());
  if (at_ == file.begin + file.size) {
    open_.reset();
    ++file_;
  }
  return true;
}

}  // namespace qkv
