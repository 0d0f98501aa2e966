// SPDX-License-Identifier: Apache-2.0
// The forward pass and the loss; network_backward.cc has the backward pass.
#include "model/network.h"

#include <algorithm>

#include "model/attention_block.h"
#include "model/cross_entropy.h"
#include "model/embedding.h"
#include "model/mlp.h"
#include "model/network_pass.h"
#include "model/norm.h"
#include "model/norm_trace.h"

namespace qkv {
namespace {

// Sequences are worked on in groups of about this many tokens, which bounds the memory of activations. No result
// depends on it.
constexpr std::int64_t kTokensAtOnce = 2048;

std::int64_t group_size(std::int64_t ctx) {
  return std::max<std::int64_t>(1, kTokensAtOnce / std::max<std::int64_t>(1, ctx));
}

// Rows whose logits exist at once: a number that depends on the vocabulary alone.
std::int64_t rows_of_logits(const ModelConfig& c) {
  constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 25, kFewest = 256, kMost = 1024;
  std::int64_t rows = kMost;
  while (rows > kFewest && rows * padded_vocab(c) > kLogitsAtOnce) rows /= 2;
  return rows;
}

}  // namespace

template <class T, class S>
Network<T, S>::Network(const ModelConfig& config) : c_(config) {
  table_.head_dim = c_.head_dim;
  table_.theta = c_.rope_theta;
  if (c_.positions == Positions::rotary) table_.frequencies = rotary_frequencies(config);
}

template <class T, class S>
LayerActivations<T, S>& Network<T, S>::activations(const Pass& pass, std::size_t i) {
  return w_.layers[pass.keep ? i : 0];
}

template <class T, class S>
RemadeActivations<T, S>& Network<T, S>::remade(const Pass& pass, std::size_t i) {
  return pass.keep && !recompute_ ? w_.layers[i].remade : w_.remade;
}

// Token t of a sequence stands at first_position + t -> x [batch, ctx, d_model]
template <class T, class S>
void Network<T, S>::embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
                          const ModelParameters<const T*>& p, T* x) {
  const std::int64_t d = c_.d_model;
  if constexpr (std::is_same_v<T, float>) {
    if (prepared_.stored) {                   // the rows that are needed are a table of their own
      T* rows = w_.delta.take(s.rows() * d);  // [rows, d_model]
      std::vector<std::int32_t> numbers(static_cast<std::size_t>(s.rows()), 0);
      for (std::int64_t i = 0; i < s.rows(); ++i) {
        if (i % s.ctx >= s.length(i / s.ctx)) continue;
        numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
        prepared_.embedding.row(tokens[static_cast<std::size_t>(i)], prepared_.head, rows + i * d);
      }
      return embedding_forward(s, d, numbers, first_position, static_cast<const T*>(rows), p.position_embedding, x);
    }
  }
  embedding_forward(s, d, tokens, first_position, p.token_embedding, p.position_embedding, x);
}

// sum [batch, ctx, d_model], what embed() made
template <class T, class S>
void Network<T, S>::trace_embedding(const Pass& pass, T* sum) {
  const LayerTrace around = pass.trace_around();
  const T* positions = pass.p.position_embedding;  // [ctx_len, d_model] or null
  const Dims shape{pass.s.batch, pass.s.ctx, c_.d_model};
  if (!positions) return around.show(TraceSite::embed, around.rows(sum, c_.d_model));
  if (around.wants(TraceSite::embed)) {
    ModelParameters<const T*> alone = pass.p;
    alone.position_embedding = nullptr;
    Tensor tokens(shape, dtype_of<T>);
    embed(pass.s, pass.tokens, 0, alone, tokens.data<T>());
    around.show(TraceSite::embed, tokens);
  }
  around.show(TraceSite::pos_embed, ConstView{positions, dtype_of<T>, shape, Dims{0, c_.d_model, 1}});
}

template <class T, class S>
std::size_t Network<T, S>::weight_bytes() const noexcept {
  std::size_t bytes = prepared_.head.bytes();
  for (const PreparedLayer<T>& layer : prepared_.layers)
    bytes += layer.qkv.bytes() + layer.wo.bytes() + layer.up.bytes() + layer.down.bytes();
  return bytes;
}

template <class T, class S>
const S* Network<T, S>::forward(const Pass& pass) {
  const std::int64_t rows = pass.s.rows(), size = rows * c_.d_model;
  if (c_.positions == Positions::rotary) table_.reach(pass.s.ctx);
  const auto n_layer = static_cast<std::size_t>(c_.n_layer);
  w_.layers.resize(std::max(w_.layers.size(), pass.keep ? n_layer + 1 : 1));
  T* x = activations(pass, 0).x.take(size);                  // [rows, d_model]
  T* sum = c_.embedding_norm ? w_.embedding.take(size) : x;  // [rows, d_model]
  {
    const PartTimer timer(profile_, &ModelProfile::embedding);
    embed(pass.s, pass.tokens, 0, pass.p, sum);
  }
  const LayerTrace around = pass.trace_around();
  if (around.sink) trace_embedding(pass, sum);
  {
    const PartTimer timer(profile_, &ModelProfile::norms);
    if (c_.embedding_norm)
      norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, sum, pass.p.embedding_norm.gain, pass.p.embedding_norm.bias,
                   x, w_.embedding_stats.take(2 * rows));
    RemadeActivations<T, S>& a = remade(pass, 0);
    const NormParameters<const T*>& norm = pass.p.layers[0].attention_norm;
    norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, x, norm.gain, norm.bias, a.attention_norm.take(size),
                 a.attention_stats.take(2 * rows));
  }
  if (c_.embedding_norm)
    trace_norm(around, TraceSite::embed_ln_scale, TraceSite::embed_ln_normalized, c_.norm, c_.d_model,
               static_cast<const T*>(sum), static_cast<const T*>(w_.embedding_stats.get()), x);
  for (std::size_t i = 0; i < n_layer; ++i) layer_forward(pass, i);
  if (c_.final_norm) {
    trace_norm(around, TraceSite::ln_final_scale, TraceSite::ln_final_normalized, c_.norm, c_.d_model,
               static_cast<const T*>(activations(pass, n_layer).x.get()), static_cast<const T*>(w_.final_stats.get()),
               w_.final_norm.get());
    return w_.final_norm.get();
  }
  const PartTimer timer(profile_, &ModelProfile::norms);
  return as_operand(size, static_cast<const T*>(activations(pass, n_layer).x.get()), w_.final_norm);
}

// The layer's norm has been made already: by forward() or by the layer before.
template <class T, class S>
void Network<T, S>::layer_forward(const Pass& pass, std::size_t i) {
  const std::int64_t rows = pass.s.rows(), size = rows * c_.d_model;
  LayerActivations<T, S>& a = activations(pass, i);
  RemadeActivations<T, S>& r = remade(pass, i);
  const LayerParameters<const T*>& p = pass.p.layers[i];
  const PreparedLayer<T>& w = prepared_.layers[i];
  const LayerTrace trace = pass.trace(i);
  trace.show(TraceSite::resid_pre, trace.rows(a.x.get(), c_.d_model));
  trace_norm(trace, TraceSite::ln1_scale, TraceSite::ln1_normalized, c_.norm, c_.d_model,
             static_cast<const T*>(a.x.get()), static_cast<const T*>(r.attention_stats.get()), r.attention_norm.get());
  T* delta = w_.delta.take(size);   // [rows, d_model]
  T* middle = r.middle.take(size);  // [rows, d_model]
  S* mn = r.mlp_norm.take(size);    // [rows, d_model]
  attention_block_forward(c_, pass.s, w, p.bo, table_, static_cast<const S*>(r.attention_norm.get()), a,
                          pass.of_attention(i), profile_, delta, trace);
  drop(pass, i, DropoutKind::attention_residual, delta);
  trace.pass(TraceSite::attn_out, trace.rows(delta, c_.d_model));
  {
    const PartTimer timer(profile_, &ModelProfile::norms);
    add_norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, static_cast<const T*>(a.x.get()),
                     static_cast<const T*>(delta), p.mlp_norm.gain, p.mlp_norm.bias, middle, mn,
                     r.mlp_stats.take(2 * rows));
  }
  trace.show(TraceSite::resid_mid, trace.rows(middle, c_.d_model));
  trace_norm(trace, TraceSite::ln2_scale, TraceSite::ln2_normalized, c_.norm, c_.d_model, static_cast<const T*>(middle),
             static_cast<const T*>(r.mlp_stats.get()), mn);
  {
    const PartTimer timer(profile_, &ModelProfile::mlp);
    mlp_forward(c_, rows, w, p.b_down, static_cast<const S*>(mn), r, delta, trace);
  }
  drop(pass, i, DropoutKind::mlp_residual, delta);
  trace.pass(TraceSite::mlp_out, trace.rows(delta, c_.d_model));
  end_layer(pass, i, middle, delta);
  trace.show(TraceSite::resid_post, trace.rows(activations(pass, i + 1).x.get(), c_.d_model));
}

// delta [rows, d_model], what a block adds to the stream
template <class T, class S>
void Network<T, S>::drop(const Pass& pass, std::size_t layer, DropoutKind kind, T* delta) {
  const Dropout dropout = pass.at(layer, kind);
  if (!dropout) return;
  const PartTimer timer(profile_, &ModelProfile::norms);
  drop_sequences(dropout, pass.s, pass.first_sequence, c_.ctx_len, c_.d_model, static_cast<const T*>(delta), delta);
}

// The next layer's input, middle + delta, and the norm that follows.
template <class T, class S>
void Network<T, S>::end_layer(const Pass& pass, std::size_t i, const T* middle, const T* delta) {
  const PartTimer timer(profile_, &ModelProfile::norms);
  const std::int64_t rows = pass.s.rows(), size = rows * c_.d_model;
  const bool last = i + 1 == pass.p.layers.size();
  T* next = activations(pass, i + 1).x.take(size);  // [rows, d_model]
  if (last && !c_.final_norm) return add(size, middle, delta, next);
  const NormParameters<const T*>& norm = last ? pass.p.final_norm : pass.p.layers[i + 1].attention_norm;
  S* y = nullptr;           // [rows, d_model]
  T* statistics = nullptr;  // [rows, 2]
  if (last) {
    y = w_.final_norm.take(size);
    statistics = w_.final_stats.take(2 * rows);
  } else {
    y = remade(pass, i + 1).attention_norm.take(size);
    statistics = remade(pass, i + 1).attention_stats.take(2 * rows);
  }
  add_norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, middle, delta, norm.gain, norm.bias, next, y, statistics);
}

template <class T, class S>
void Network<T, S>::head_logits(std::int64_t rows, const S* x, T* logits) {
  const std::int64_t vocab = c_.vocab_size, padded = padded_vocab(c_), most = rows_of_logits(c_);
  for (std::int64_t i = 0; i < rows; i += most) {
    const std::int64_t count = std::min(most, rows - i);
    T* wide = padded == vocab ? logits + i * vocab : w_.logits.take(count * padded);  // [count, padded]
    prepared_.head.forward(count, x + i * c_.d_model, static_cast<const T*>(nullptr), wide);
    for (std::int64_t r = 0; r < count && padded != vocab; ++r)
      std::copy_n(wide + r * padded, vocab, logits + (i + r) * vocab);
  }
}

template <class T, class S>
void Network<T, S>::logits(const ModelParameters<const T*>& p, const Sequences& s, std::span<const std::int32_t> tokens,
                           T* logits, TraceSink* sink) {
  prepared_.prepare(c_, p, false);
  const std::int64_t group = sink ? s.batch : group_size(s.ctx);  // a sink sees all sequences at once
  for (std::int64_t b = 0; b < s.batch; b += group) {
    const Sequences part = s.part(b, group);
    const S* x = forward({p, part, tokens.subspan(static_cast<std::size_t>(b * s.ctx)), false, {}, 0, sink});
    head_logits(part.rows(), x, logits + b * s.ctx * c_.vocab_size);
  }
}

template <class T, class S>
void Network<T, S>::unembed(const ModelParameters<const T*>& p, std::int64_t rows, const T* stream, T* logits) {
  prepared_.prepare(c_, p, false);
  const std::int64_t size = rows * c_.d_model;
  if (!c_.final_norm) return head_logits(rows, as_operand(size, stream, w_.final_norm), logits);
  S* x = w_.final_norm.take(size);  // [rows, d_model]
  norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, stream, p.final_norm.gain, p.final_norm.bias, x,
               w_.final_stats.take(2 * rows));
  head_logits(rows, x, logits);
}

template <class T, class S>
Loss Network<T, S>::loss(const ModelParameters<const T*>& p, const Batch& batch, T scale,
                         GradientSum::Impl* gradients) {
  prepared_.prepare(c_, p, gradients != nullptr);
  const Sequences s{batch.batch, batch.ctx, batch.lengths};
  const std::int64_t group = group_size(s.ctx);
  Loss total;
  for (std::int64_t b = 0; b < s.batch; b += group) {
    const auto offset = static_cast<std::size_t>(b * s.ctx);
    Pass pass{p, s.part(b, group), batch.tokens.subspan(offset), gradients != nullptr};
    GradientSlots<T> slots;
    if (gradients) {
      pass.dropout = dropout_;
      pass.first_sequence = gradients->lanes.next();
    }
    if (gradients) slots = take_slots<T>(*gradients, pass.s.batch);
    const S* x = forward(pass);                                            // [rows, d_model]
    T* dx = gradients ? w_.dx.take(pass.s.rows() * c_.d_model) : nullptr;  // [rows, d_model]
    head_loss(pass, x, batch.targets.data() + offset, scale, dx, gradients ? &slots : nullptr, total);
    if (gradients) backward(pass, slots);
  }
  return total;
}

// Logits of a piece of a sequence, their loss and gradient, then the next piece: they never exist for a whole batch.
// The sum has one order whatever the groups are: a sequence's rows in order, then the sequences in order.
template <class T, class S>
void Network<T, S>::head_loss(const Pass& pass, const S* x, const std::int32_t* targets, T scale, T* dx,
                              const GradientSlots<T>* g, Loss& total) {
  const PartTimer timer(profile_, &ModelProfile::head);
  const std::int64_t d = c_.d_model, padded = padded_vocab(c_), most = rows_of_logits(c_);
  if (g) std::fill_n(dx, pass.s.rows() * d, T{0});
  const SlotPointers<T> dhead = g ? g->of([](auto& role) { return role.head; }) : SlotPointers<T>{};
  std::vector<SumStep> steps = g ? g->steps : std::vector<SumStep>{};
  if (!g)
    for (std::int64_t b = 0; b < pass.s.batch; ++b) steps.push_back({0, -1, true, b});
  const bool wanted = dhead[0] != nullptr;  // the head's gradient
  for (const SumStep& step : steps) {
    T* to = dhead[static_cast<std::size_t>(step.to)];  // [d_model, vocab_size], tied: [vocab_size, d_model]
    if (step.from >= 0) {
      if (wanted) add(d * c_.vocab_size, to, dhead[static_cast<std::size_t>(step.from)], to);
      continue;
    }
    const std::int64_t b = step.sequence, length = pass.s.length(b);
    if (wanted && length == 0) head_gradient(0, x, nullptr, step.fresh, to);
    double sum = 0;
    for (std::int64_t t = 0; t < length; t += most) {
      const std::int64_t first = b * pass.s.ctx + t, rows = std::min(most, length - t);
      T* logits = w_.logits.take(rows * padded);  // [rows, padded]
      S* dlogits = nullptr;                       // [rows, padded]
      if constexpr (std::is_same_v<T, S>)
        dlogits = g ? logits : nullptr;
      else
        dlogits = g ? w_.dlogits.take(rows * padded) : nullptr;
      double* losses = w_.losses.take(rows);  // [rows]
      prepared_.head.forward(rows, x + first * d, static_cast<const T*>(nullptr), logits);
      cross_entropy(rows, c_.vocab_size, padded, logits, targets + first, scale, dlogits, losses);
      for (std::int64_t i = 0; i < rows; ++i) sum += losses[i];
      total.count += std::count_if(targets + first, targets + first + rows, [](std::int32_t y) { return y >= 0; });
      if (!g) continue;
      prepared_.head.backward_input(rows, static_cast<const S*>(dlogits), dx + first * d);
      if (wanted) head_gradient(rows, x + first * d, dlogits, step.fresh && t == 0, to);
    }
    total.sum += sum;
    if (g) g->losses->push_back(sum);
  }
}

// dhead (+)= x^T dlogits, or its transpose where the head is tied; x [rows, d_model], dlogits [rows, padded]
template <class T, class S>
void Network<T, S>::head_gradient(std::int64_t rows, const S* x, const S* dlogits, bool fresh, T* dhead) {
  const std::int64_t d = c_.d_model, vocab = c_.vocab_size, padded = padded_vocab(c_);
  const Sequences s{1, rows};
  const SumStep step{0, -1, fresh, 0};
  const WeightGradient<S, T> gradient = c_.tied_head ? WeightGradient<S, T>{vocab, d, dlogits, padded, x, d, {dhead}}
                                                     : WeightGradient<S, T>{d, vocab, x, d, dlogits, padded, {dhead}};
  add_weight_gradients<S, T>(s, {&step, 1}, {&gradient, 1});
}

template class Network<float, float>;
template class Network<float, bf16>;
template class Network<double, double>;

}  // namespace qkv
