// SPDX-License-Identifier: Apache-2.0
#include "qkv/corpus.h"
#include "text/bpe_trainer.h"
#include "text/piece_counts.h"
#include "train/text_chunks.h"

namespace qkv {
namespace {

constexpr PieceCounts::Limits kLimits{std::size_t{4} << 20, std::size_t{64} << 20};

}  // namespace

Tokenizer train_bpe(const Corpus& corpus, std::int64_t size, const BpeProgress& progress) {
  PieceCounts counts(kLimits);
  std::vector<PieceCounts> parts(static_cast<std::size_t>(wave_size()));
  std::int64_t done = 0;
  ChunkReader reader(corpus, CorpusPart::training);
  for_each_chunk(
      reader,
      [&](const TextChunk& chunk, std::int64_t i) {
        PieceCounts& part = parts[static_cast<std::size_t>(i)];
        part.clear();
        each_text(chunk, reader.rules(), [&](std::string_view text, bool) { part.add_text(text); });
      },
      [&](const TextChunk& chunk, std::int64_t i) {
        counts.merge(parts[static_cast<std::size_t>(i)]);
        done += static_cast<std::int64_t>(chunk.bytes.size());
        if (progress.on_text) progress.on_text(done, corpus.bytes(CorpusPart::training));
      });
  parts.clear();
  return Tokenizer::from_data(train_bpe_data(counts, size, progress.on_token));
}

}  // namespace qkv
