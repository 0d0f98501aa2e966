// SPDX-License-Identifier: Apache-2.0
// Reads a corpus in chunks that can be processed in parallel; the only reader.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "train/corpus_files.h"

namespace qkv {

// Chunk sizes of a corpus, in bytes.
struct ChunkSizes {
  std::size_t chunk = std::size_t{256} << 10;        // approximate chunk size
  std::size_t longest_text = std::size_t{8} << 20;   // plain text without a cut position
  std::size_t longest_line = std::size_t{64} << 20;  // JSON; longer lines are rejected
};

// About 256 KB of one file: plain text up to a cut position, or whole lines of JSON.
struct TextChunk {
  std::string bytes;
  const CorpusFile* file = nullptr;
  std::int64_t at = 0;  // offset of its first byte within the file
  bool begins = false;  // plain text: starts a document
};

// Last position where `text` can be cut (0: none): after the last newline between two characters that are not white
// space, including Unicode's. The bytes after `text` are unknown.
std::size_t last_cut(std::string_view text) noexcept;

// The first separator from a position on: its begin, and the end of the line end after it, if there is one.
struct Separator {
  std::size_t begin = std::string::npos, end = 0;
};
Separator find_separator(std::string_view text, std::string_view separator, std::size_t from) noexcept;

// Calls take(text, begins) for each non-empty text of a chunk: see Corpus::read_text. Throws qkv::FileError.
void each_text(const TextChunk& chunk, const TextRules& rules, const std::function<void(std::string_view, bool)>& take);

class ChunkReader {
 public:
  ChunkReader(const Corpus& corpus, CorpusPart part, const ChunkSizes& sizes = {});
  // The next chunk in corpus order; false at the end. Reuses the chunk's memory.
  bool next(TextChunk& chunk);
  const TextRules& rules() const noexcept { return files_->rules; }
  std::int64_t done() const noexcept { return at_ - begin_; }  // bytes of the part returned so far

 private:
  std::shared_ptr<const Corpus::Files> files_;
  ChunkSizes sizes_;
  std::int64_t begin_, end_, at_;  // offsets in the joined files
  std::size_t file_ = 0;
  std::optional<OpenCorpusFile> open_;
  std::string carried_;  // read but not yet returned
  bool after_separator_ = false;
};

// Processes chunks in waves of a few per thread: work(chunk, i) in parallel, then done(chunk, i) sequentially in order,
// with i below wave_size(). So memory stays bounded and results do not depend on the threads.
inline std::int64_t wave_size() noexcept { return std::int64_t{4} * num_threads(); }
template <class Work, class Done>
void for_each_chunk(ChunkReader& reader, const Work& work, const Done& done) {
  std::vector<TextChunk> chunks(static_cast<std::size_t>(wave_size()));
  for (std::int64_t count = -1; count != 0;) {
    count = 0;
    while (count < static_cast<std::int64_t>(chunks.size()) && reader.next(chunks[static_cast<std::size_t>(count)]))
      ++count;
    parallel_for(count, [&](std::int64_t i) { work(chunks[static_cast<std::size_t>(i)], i); });
    for (std::int64_t i = 0; i < count; ++i) done(chunks[static_cast<std::size_t>(i)], i);
  }
}

}  // namespace qkv
