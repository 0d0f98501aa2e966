// SPDX-License-Identifier: Apache-2.0
#include "qkv/corpus.h"

#include <algorithm>
#include <stdexcept>

#include "core/number_text.h"
#include "train/checksum.h"
#include "train/corpus_files.h"
#include "train/text_chunks.h"

namespace qkv {
namespace {

constexpr std::int64_t kLineSearch = 4096;  // how far the split may move to the start of a line
constexpr std::int64_t kBlock = std::int64_t{1} << 20;

std::string read_range(const OpenCorpusFile& file, std::int64_t at, std::int64_t size) {
  std::string bytes(static_cast<std::size_t>(size), '\0');
  file.read(at, bytes);
  return bytes;
}

// The first newline in [at, end); -1: none.
std::int64_t find_newline(const OpenCorpusFile& file, std::int64_t at, std::int64_t end) {
  for (; at < end; at += kBlock) {
    const std::size_t newline = read_range(file, at, std::min(kBlock, end - at)).find('\n');
    if (newline != std::string::npos) return at + static_cast<std::int64_t>(newline);
  }
  return -1;
}

// The end of the first separator that ends at or after byte `wanted`, its line end included; -1: none before the end.
std::int64_t separator_end(const CorpusFile& described, const std::string& separator, std::int64_t wanted) {
  const OpenCorpusFile file(described);
  const auto longest = static_cast<std::int64_t>(separator.size()) + 2;
  for (std::int64_t at = std::max<std::int64_t>(0, wanted - longest); at < described.size; at += kBlock) {
    const std::string block = read_range(file, at, std::min(kBlock + longest, described.size - at));
    for (std::size_t from = 0;;) {
      const Separator found = find_separator(block, separator, from);
      if (found.begin == std::string::npos) break;
      const std::int64_t end = at + static_cast<std::int64_t>(found.end);
      if (end >= wanted) return end < described.size ? end : -1;
      from = found.end;
    }
  }
  return -1;
}

// Where a file is split, at or after byte `wanted`: see Corpus.
std::int64_t cut_at(const CorpusFile& described, std::int64_t wanted) {
  const OpenCorpusFile file(described);
  const std::int64_t end = described.json_lines ? described.size : std::min(described.size, wanted + kLineSearch);
  const std::int64_t newline = find_newline(file, wanted - 1, end);
  if (newline >= 0 && newline + 1 < described.size) return newline + 1;
  if (described.json_lines) return described.size;
  const std::string next = read_range(file, wanted, std::min<std::int64_t>(3, described.size - wanted));
  std::int64_t cut = wanted;  // a character has at most three continuation bytes
  for (const char byte : next) {
    if ((static_cast<unsigned char>(byte) & 0xC0u) != 0x80u) break;
    ++cut;
  }
  return cut;
}

}  // namespace

Corpus::Corpus(std::shared_ptr<const Files> files, double validation_fraction) : files_(std::move(files)) {
  if (!(validation_fraction >= 0 && validation_fraction < 1)) {
    throw std::invalid_argument("[dataset] expected a validation fraction of at least 0 and below 1; found " +
                                number_text(validation_fraction));
  }
  // floor(bytes * fraction) bytes of validation, before the split moves.
  const std::int64_t total = files_->bytes;
  const std::int64_t first = total - static_cast<std::int64_t>(static_cast<double>(total) * validation_fraction);
  cut_ = first;
  for (const CorpusFile& file : files_->files) {
    if (file.begin >= first || first >= file.begin + file.size) continue;
    const std::string& separator = files_->rules.separator;
    const std::int64_t wanted = first - file.begin;
    const std::int64_t after = file.json_lines || separator.empty() ? -1 : separator_end(file, separator, wanted);
    cut_ = file.begin + (after >= 0 ? after : cut_at(file, wanted));
  }
}

std::int64_t Corpus::bad_lines() const { return files_->rules.passed ? files_->rules.passed->count() : 0; }
std::string Corpus::first_bad_line() const { return files_->rules.passed ? files_->rules.passed->first() : ""; }
const std::vector<Corpus::Skipped>& Corpus::skipped() const noexcept { return files_->skipped; }

Corpus Corpus::read(const std::vector<std::string>& paths, const CorpusOptions& options) {
  return Corpus(std::make_shared<const Files>(list_corpus_files(paths, options)), options.validation_fraction);
}

Corpus Corpus::from_text(std::string text, double validation_fraction) {
  Files files;
  CorpusFile file;
  file.name = "the text";
  file.size = static_cast<std::int64_t>(text.size());
  file.held = std::move(text);
  files.add(std::move(file));
  return Corpus(std::make_shared<const Files>(std::move(files)), validation_fraction);
}

std::int64_t Corpus::file_count() const noexcept { return static_cast<std::int64_t>(files_->files.size()); }
const std::string& Corpus::file_name(std::int64_t i) const {
  return files_->files.at(static_cast<std::size_t>(i)).name;
}

std::int64_t Corpus::bytes(CorpusPart part) const noexcept {
  if (part == CorpusPart::all) return files_->bytes;
  return part == CorpusPart::training ? cut_ : files_->bytes - cut_;
}

std::uint64_t Corpus::checksum() const {
  Checksum checksum;
  std::string block;
  for (const CorpusFile& described : files_->files) {
    const OpenCorpusFile file(described);
    const auto size = static_cast<std::uint64_t>(described.size);
    checksum.add(&size, sizeof size);
    for (std::int64_t at = 0; at < described.size; at += kBlock) {
      block.resize(static_cast<std::size_t>(std::min(kBlock, described.size - at)));
      file.read(at, block);
      checksum.add(block.data(), block.size());
    }
  }
  return checksum.value();
}

void Corpus::read_text(CorpusPart part, const std::function<bool(std::string_view text, bool begins)>& take) const {
  ChunkReader reader(*this, part);
  TextChunk chunk;
  bool more = true;
  while (more && reader.next(chunk)) {
    each_text(chunk, reader.rules(), [&](std::string_view text, bool begins) { more = more && take(text, begins); });
  }
}

}  // namespace qkv
