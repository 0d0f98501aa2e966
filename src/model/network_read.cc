// SPDX-License-Identifier: Apache-2.0
// Reading on from caches: rows of any number of sequences side by side, each with the bits it has in the forward pass
// of network.cc, which is made of the same functions.
#include <algorithm>

#include "core/team.h"
#include "model/attention_block.h"
#include "model/mlp.h"
#include "model/network.h"
#include "model/norm.h"

namespace qkv {
namespace {

// Long texts are read in pieces of so many tokens, which bounds the memory of activations. No result depends on it.
constexpr std::size_t kTokensAtOnce = 1024;

// The tokens of one sequence among the rows at hand.
struct ReadRows {
  std::int64_t first_row, rows, first_position;
  Sequences sequence() const noexcept { return {1, rows}; }
};

std::vector<ReadRows> rows_of(std::span<const ReadPart> parts) {
  std::vector<ReadRows> all;
  std::int64_t row = 0;
  for (const ReadPart& part : parts) {
    const KvCache& cache = part.state->layers.front();
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    all.push_back({row, count, cache.first_key() + cache.size()});
    row += count;
  }
  return all;
}

// heads = attention of the part's rows over its cache. `wide` is room for results that the cache gives in f32 alone.
template <class S>
void attend(const ModelConfig& c, const ReadRows& part, S* qkv, KvCache& cache, S* heads) {
  const Sequences s = part.sequence();
  const QkvSizes size = qkv_sizes(c);
  const QkvViews<S> views(c, s, qkv);
  cache.append(views.k, views.v);
  AttentionResults results;
  results.out = by_head(heads, s, size.heads, c.n_head, c.v_head_dim);
  if (std::is_same_v<S, float> || cache.query_dtype() == dtype_of<S>) return cache.attend(views.q, {}, results);
  thread_local Room<float> wide;
  float* out = wide.take(part.rows * size.heads);  // [rows, n_head, v_head_dim]
  results.out = by_head(out, s, size.heads, c.n_head, c.v_head_dim);
  cache.attend(views.q, {}, results);
  row_kernels().of<S>().from_f32(part.rows * size.heads, out, heads);
}

}  // namespace

template <class T, class S>
void Network<T, S>::read(const ModelParameters<const T*>& p, std::span<const ReadPart> parts) {
  prepared_.prepare(c_, p, false);
  w_.layers.resize(std::max<std::size_t>(w_.layers.size(), 1));
  std::vector<ReadPart> rest(parts.begin(), parts.end());
  for (ReadPart& part : rest)
    while (part.tokens.size() > kTokensAtOnce) {
      const ReadPart piece{part.tokens.first(kTokensAtOnce), part.state};
      read_rows(p, {&piece, 1});
      part.tokens = part.tokens.subspan(kTokensAtOnce);
    }
  std::int64_t rows = 0;
  for (const ReadPart& part : rest) rows += static_cast<std::int64_t>(part.tokens.size());
  if (!prepared_.has_few_rows(rows)) return read_rows(p, rest);
  Team::lead([&] { read_rows(p, rest); });
}

template <class T, class S>
void Network<T, S>::read_rows(const ModelParameters<const T*>& p, std::span<const ReadPart> parts) {
  const std::vector<ReadRows> at = rows_of(parts);
  const std::int64_t rows = at.back().first_row + at.back().rows, d = c_.d_model, size = rows * d;
  T* x = w_.dx.take(size);                              // [rows, d_model], the stream
  T* middle = w_.dnorm.take(size);                      // [rows, d_model]
  T* sum = c_.embedding_norm ? middle : x;              // [rows, d_model]
  S* y = w_.remade.attention_norm.take(size);           // [rows, d_model], of a norm
  T* stats = w_.remade.attention_stats.take(2 * rows);  // [rows, 2]
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ReadRows& part = at[i];
    if (c_.positions == Positions::rotary) table_.reach(part.first_position + part.rows);
    embed(part.sequence(), parts[i].tokens, part.first_position, p, sum + part.first_row * d);
  }
  if (c_.embedding_norm)
    norm_forward(c_.norm, c_.norm_eps, rows, d, static_cast<const T*>(sum), p.embedding_norm.gain,
                 p.embedding_norm.bias, x, stats);
  const auto norm_of = [&](std::size_t layer) -> const NormParameters<const T*>& {
    return layer < p.layers.size() ? p.layers[layer].attention_norm : p.final_norm;
  };
  norm_forward(c_.norm, c_.norm_eps, rows, d, static_cast<const T*>(x), norm_of(0).gain, norm_of(0).bias, y, stats);
  T* delta = w_.delta.take(size);  // [rows, d_model]
  prepared_.layers[0].qkv.will_be_read();
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    read_attention(p, i, parts, y, delta);
    add_norm_forward(c_.norm, c_.norm_eps, rows, d, static_cast<const T*>(x), static_cast<const T*>(delta),
                     p.layers[i].mlp_norm.gain, p.layers[i].mlp_norm.bias, middle, y, stats);
    const PreparedLayer<T>& w = prepared_.layers[i];
    w.down.will_be_read();
    const S* activation = mlp_activation(c_, rows, w, static_cast<const S*>(y), w_.remade);  // [rows, d_ff]
    (i + 1 < p.layers.size() ? prepared_.layers[i + 1].qkv : prepared_.head).will_be_read();
    w.down.forward(rows, activation, p.layers[i].b_down, delta);
    if (i + 1 == p.layers.size() && !c_.final_norm)
      add(size, static_cast<const T*>(middle), static_cast<const T*>(delta), x);
    else
      add_norm_forward(c_.norm, c_.norm_eps, rows, d, static_cast<const T*>(middle), static_cast<const T*>(delta),
                       norm_of(i + 1).gain, norm_of(i + 1).bias, x, y, stats);
  }
  read_logits(parts, x, y);
}

// y [rows, d_model], the norm of the stream -> delta [rows, d_model]
template <class T, class S>
void Network<T, S>::read_attention(const ModelParameters<const T*>& p, std::size_t layer,
                                   std::span<const ReadPart> parts, const S* y, T* delta) {
  const PreparedLayer<T>& w = prepared_.layers[layer];
  const QkvSizes size = qkv_sizes(c_);
  std::int64_t rows = 0;
  bool single = true;
  for (const ReadPart& part : parts) {
    rows += static_cast<std::int64_t>(part.tokens.size());
    single = single && part.tokens.size() == 1;
  }
  LayerActivations<T, S>& a = w_.layers[0];
  S* qkv = a.qkv.take(rows * size.all());      // [rows, q + k + v]
  S* heads = a.heads.take(rows * size.heads);  // [rows, n_head, v_head_dim]
  w.wo.will_be_read();
  w.qkv.forward(rows, y, w.qkv_bias.empty() ? nullptr : w.qkv_bias.data(), qkv);
  const auto one = [&](std::int64_t row, const ReadPart& part) {
    KvCache& cache = part.state->layers[layer];
    const ReadRows at{row, static_cast<std::int64_t>(part.tokens.size()), cache.first_key() + cache.size()};
    turn(c_, at.sequence(), table_, at.first_position, false, qkv + row * size.all());
    if constexpr (!std::is_same_v<S, double>) attend(c_, at, qkv + row * size.all(), cache, heads + row * size.heads);
  };
  if (single) {  // a sequence a task
    parallel_for(static_cast<std::int64_t>(parts.size()),
                 [&](std::int64_t i) { one(i, parts[static_cast<std::size_t>(i)]); });
  } else {
    std::int64_t row = 0;
    for (const ReadPart& part : parts) {
      one(row, part);
      row += static_cast<std::int64_t>(part.tokens.size());
    }
  }
  w.up.will_be_read();
  w.wo.forward(rows, static_cast<const S*>(heads), p.layers[layer].bo, delta);
}

// The logits of each part's last row, where they are wanted; x [rows, d_model], y [rows, d_model] its final norm
template <class T, class S>
void Network<T, S>::read_logits(std::span<const ReadPart> parts, const T* x, const S* y) {
  const std::int64_t d = c_.d_model;
  S* last = w_.final_norm.take(static_cast<std::int64_t>(parts.size()) * d);  // [parts, d_model]
  std::int64_t row = 0, count = 0;
  for (const ReadPart& part : parts) {
    row += static_cast<std::int64_t>(part.tokens.size());
    if (part.logits.empty()) continue;
    if (c_.final_norm)
      std::copy_n(y + (row - 1) * d, d, last + count * d);
    else
      std::copy_n(as_operand(d, x + (row - 1) * d, w_.dheads), d, last + count * d);
    ++count;
  }
  if (count == 0) return;
  prepared_.layers[0].qkv.will_be_read();
  if (count == 1) {  // straight to where they are wanted
    for (const ReadPart& part : parts)
      if (!part.logits.empty()) head_logits(1, last, part.logits.data());
    return;
  }
  T* logits = w_.read_logits.take(count * c_.vocab_size);  // [count, vocab_size]
  head_logits(count, last, logits);
  std::vector<float*> to;
  for (const ReadPart& part : parts)
    if (!part.logits.empty()) to.push_back(part.logits.data());
  parallel_for(count, [&](std::int64_t i) {
    std::copy_n(logits + i * c_.vocab_size, c_.vocab_size, to[static_cast<std::size_t>(i)]);
  });
}

template void Network<float, float>::read_attention(const ModelParameters<const float*>&, std::size_t,
                                                    std::span<const ReadPart>, const float*, float*);
template void Network<float, bf16>::read_attention(const ModelParameters<const float*>&, std::size_t,
                                                   std::span<const ReadPart>, const bf16*, float*);
template void Network<float, float>::read_logits(std::span<const ReadPart>, const float*, const float*);
template void Network<float, bf16>::read_logits(std::span<const ReadPart>, const float*, const bf16*);
template void Network<float, float>::read_rows(const ModelParameters<const float*>&, std::span<const ReadPart>);
template void Network<float, bf16>::read_rows(const ModelParameters<const float*>&, std::span<const ReadPart>);
template void Network<float, float>::read(const ModelParameters<const float*>&, std::span<const ReadPart>);
template void Network<float, bf16>::read(const ModelParameters<const float*>&, std::span<const ReadPart>);

}  // namespace qkv
