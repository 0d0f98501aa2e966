// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "os/mapped_file.h"
#include "qkv/dataset.h"
#include "qkv/error.h"
#include "train/checksum.h"

namespace qkv {
namespace {

constexpr std::int64_t kLineSearch = 4096;  // how far the cut may move to reach the start of a line

// One file's bytes: mapped, or in memory if it is a pipe.
struct Source {
  MappedFile mapped;
  std::string held;
  std::string_view text() const {
    return mapped.size() ? std::string_view(reinterpret_cast<const char*>(mapped.data()), mapped.size())
                         : std::string_view(held);
  }
};

Source open_source(const std::string& path) {
  Source source;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw FileError(path, "cannot be opened for reading");
    source.held.assign(std::istreambuf_iterator<char>(stream), {});
    if (stream.bad()) throw FileError(path, "cannot be read");
    if (source.held.empty()) throw FileError(path, "is empty");
  } else {
    source.mapped = MappedFile(path);
  }
  return source;
}

// Where `text` is cut if not before byte `wanted`: see Corpus.
std::size_t cut_at(std::string_view text, std::size_t wanted) {
  if (wanted == 0 || wanted >= text.size()) return std::min(wanted, text.size());
  if (text[wanted - 1] == '\n') return wanted;
  const std::size_t newline = text.substr(0, std::min(text.size(), wanted + kLineSearch)).find('\n', wanted);
  if (newline != std::string_view::npos && newline + 1 < text.size()) return newline + 1;
  std::size_t cut = wanted;  // a character has at most three continuation bytes
  while (cut < text.size() && cut < wanted + 3 && (static_cast<unsigned char>(text[cut]) & 0xC0u) == 0x80u) ++cut;
  return cut;
}

}  // namespace

Corpus::Corpus(std::shared_ptr<const void> owner, const std::vector<std::string_view>& texts,
               double validation_fraction)
    : owner_(std::move(owner)) {
  if (!(validation_fraction >= 0 && validation_fraction < 1)) {
    throw std::invalid_argument("[dataset] expected a validation fraction of at least 0 and below 1; found " +
                                std::to_string(validation_fraction));
  }
  std::int64_t total = 0;
  for (const auto text : texts) total += static_cast<std::int64_t>(text.size());
  // floor(total * fraction) bytes of validation, before the cut moves.
  const auto first = total - static_cast<std::int64_t>(static_cast<double>(total) * validation_fraction);
  std::int64_t seen = 0;
  Checksum checksum;
  for (const auto text : texts) {
    const auto size = static_cast<std::int64_t>(text.size());
    std::size_t cut = text.size();
    if (seen >= first) {
      cut = 0;
    } else if (seen + size > first) {
      cut = cut_at(text, static_cast<std::size_t>(first - seen));
    }
    if (cut > 0) training_.push_back(text.substr(0, cut));
    if (cut < text.size()) validation_.push_back(text.substr(cut));
    training_bytes_ += static_cast<std::int64_t>(cut);
    validation_bytes_ += size - static_cast<std::int64_t>(cut);
    seen += size;
    const std::uint64_t bytes = text.size();
    checksum.add(&bytes, sizeof bytes);
    checksum.add(text.data(), text.size());
  }
  checksum_ = checksum.value();
}

Corpus Corpus::read(const std::vector<std::string>& files, double validation_fraction) {
  auto sources = std::make_shared<std::vector<Source>>();
  for (const auto& file : files) sources->push_back(open_source(file));
  std::vector<std::string_view> texts;
  for (const auto& source : *sources) texts.push_back(source.text());
  return Corpus(std::move(sources), texts, validation_fraction);
}

Corpus Corpus::from_text(std::string text, double validation_fraction) {
  auto held = std::make_shared<std::string>(std::move(text));
  const std::string_view whole = *held;
  return Corpus(std::move(held), {whole}, validation_fraction);
}

void Corpus::with_training_text(const std::function<void(std::string_view)>& use) const {
  if (training_.size() == 1) return use(training_.front());
  std::string joined;
  joined.reserve(static_cast<std::size_t>(training_bytes_));
  for (const auto piece : training_) joined += piece;
  use(joined);
}

}  // namespace qkv
