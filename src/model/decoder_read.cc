// SPDX-License-Identifier: Apache-2.0
// Prefill and decode: rows of several sequences in one batch, each appended to its KV cache. Every row is bit-identical
// to the same row in a pass over its whole sequence.
#include <algorithm>
#include <vector>

#include "model/attend.h"
#include "model/decoder.h"

namespace qkv {
namespace {

// Long prompts are evaluated in chunks of this many tokens, to bound activation memory. Results do not depend on it.
constexpr std::size_t kTokensAtOnce = 1024;

std::int64_t rows_of(std::span<const DecodePart> parts) {
  std::int64_t rows = 0;
  for (const DecodePart& part : parts) rows += static_cast<std::int64_t>(part.tokens.size());
  return rows;
}

std::int64_t next_position(const DecodePart& part) {
  const KvCache& cache = part.state->layers.front();
  return cache.first_key() + cache.size();
}

}  // namespace

void Decoder::read(const ParameterViews& values, std::span<const DecodePart> parts) {
  weights_.prepare(values, false);
  work_.layers.resize(std::max<std::size_t>(work_.layers.size(), 1));
  std::vector<DecodePart> rest(parts.begin(), parts.end());
  for (DecodePart& part : rest)
    while (part.tokens.size() > kTokensAtOnce) {
      const DecodePart chunk{part.tokens.first(kTokensAtOnce), part.state};
      read_rows({&chunk, 1});
      part.tokens = part.tokens.subspan(kTokensAtOnce);
    }
  device_.run(rows_of(rest), weights_.matrices(), [&] { read_rows(rest); });
}

void Decoder::read_rows(std::span<const DecodePart> parts) {
  for (const DecodePart& part : parts)
    rotary_.reach(next_position(part) + static_cast<std::int64_t>(part.tokens.size()));
  CachedAttention attention(parts);
  Pass p = pass({1, rows_of(parts)}, attention);
  const View x = p.stream(work_.layers[0].x, c_.d_model);                          // [rows, d_model]
  const View sum = c_.embedding_norm ? p.stream(work_.embedding, c_.d_model) : x;  // [rows, d_model]
  std::int64_t first = 0;
  for (const DecodePart& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    device_.embed({1, count}, part.tokens, next_position(part), weights_.tokens, c_.embedding_scale, weights_.positions,
                  qkv::rows_of(sum, first, count));
    first += count;
  }
  if (c_.embedding_norm) device_.norm(weights_.embedding_norm.parameters, sum, x, p.stream(work_.embedding_stats, 2));
  device_.prefetch(*weights_.layers[0].qkv);
  last_logits(parts, layers_forward(p, x, false));
}

// The logits of each part's last row, if requested; y [rows, d_model], the LM head's input
void Decoder::last_logits(std::span<const DecodePart> parts, const View& y) {
  const View last = work_.dy.take(device_, operand_, Dims{static_cast<std::int64_t>(parts.size()), c_.d_model});
  std::vector<float*> to;
  std::int64_t row = 0;
  for (const DecodePart& part : parts) {
    row += static_cast<std::int64_t>(part.tokens.size());
    if (part.logits.empty()) continue;
    device_.convert(qkv::rows_of(y, row - 1, 1), qkv::rows_of(last, static_cast<std::int64_t>(to.size()), 1));
    to.push_back(part.logits.data());
  }
  if (to.empty()) return;
  device_.prefetch(*weights_.layers[0].qkv);
  const auto count = static_cast<std::int64_t>(to.size());
  const View logits = work_.last_logits.take(device_, device_.stream_type(), Dims{count, c_.vocab_size});
  head_logits(qkv::rows_of(last, 0, count), logits);
  device_.for_each(count, [&](std::int64_t i) {
    const View from = qkv::rows_of(logits, i, 1);  // [1, vocab_size]
    float* host = to[static_cast<std::size_t>(i)];
    if (from.dtype == DType::f32) return device_.to_host(from, host);
    std::vector<double> wide(static_cast<std::size_t>(c_.vocab_size));
    device_.to_host(from, wide.data());
    std::transform(wide.begin(), wide.end(), host, [](double x) { return static_cast<float>(x); });
  });
}

}  // namespace qkv
