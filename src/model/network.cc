// SPDX-License-Identifier: Apache-2.0
#include "model/network.h"

#include <algorithm>

#include "model/attention_block.h"
#include "model/cross_entropy.h"
#include "model/embedding.h"
#include "model/linear.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace qkv {
namespace {

// Sequences are worked on in groups of about this many tokens, which bounds the memory of activations. No result
// depends on it.
constexpr std::int64_t kTokensAtOnce = 4096;
// Logits that exist at once; a sequence is cut into pieces of a size that depends on the vocabulary alone.
constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 24;

std::int64_t group_size(const ModelConfig& c, std::int64_t ctx, bool gradients) {
  // A tied matrix gets its gradient from both ends of the model: sequence by sequence, or the order of the sum would
  // depend on the batch.
  if (gradients && c.tied_head) return 1;
  return std::max<std::int64_t>(1, kTokensAtOnce / std::max<std::int64_t>(1, ctx));
}

}  // namespace

template <class T>
struct Network<T>::Pass {
  const ModelParameters<const T*>& p;
  Sequences s;
  std::span<const std::int32_t> tokens;  // [batch, ctx]
  bool keep;                             // activations, for the backward pass
  std::span<KvCache> caches = {};        // [n_layer] when reading on
};

template <class T>
Network<T>::Network(const ModelConfig& config) : c_(config) {
  table_.head_dim = c_.head_dim;
  table_.theta = c_.rope_theta;
  if (c_.positions == Positions::rotary) table_.frequencies = rotary_frequencies(c_);
}

template <class T>
LayerActivations<T>& Network<T>::activations(const Pass& pass, std::size_t i) {
  return w_.layers[pass.keep ? i : 0];
}

template <class T>
T* Network<T>::forward(const Pass& pass) {
  const std::int64_t rows = pass.s.rows(), size = rows * c_.d_model;
  const std::int64_t first = pass.caches.empty() ? 0 : pass.caches[0].first_key() + pass.caches[0].size();
  if (c_.positions == Positions::rotary) table_.reach(first + pass.s.ctx);
  const auto n_layer = static_cast<std::size_t>(c_.n_layer);
  w_.layers.resize(std::max(w_.layers.size(), pass.keep ? n_layer + 1 : 1));
  T* x = activations(pass, 0).x.take(size);                  // [rows, d_model]
  T* sum = c_.embedding_norm ? w_.embedding.take(size) : x;  // [rows, d_model]
  embedding_forward(pass.s, c_.d_model, pass.tokens, first, pass.p.token_embedding, pass.p.position_embedding, sum);
  if (c_.embedding_norm)
    norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, sum, pass.p.embedding_norm.gain, pass.p.embedding_norm.bias, x,
                 w_.embedding_stats.take(2 * rows));
  for (std::size_t i = 0; i < n_layer; ++i) layer_forward(pass, i);
  x = activations(pass, n_layer).x.get();
  if (!c_.final_norm) return x;
  T* y = w_.final_norm.take(size);  // [rows, d_model]
  norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, x, pass.p.final_norm.gain, pass.p.final_norm.bias, y,
               w_.final_stats.take(2 * rows));
  return y;
}

template <class T>
void Network<T>::layer_forward(const Pass& pass, std::size_t i) {
  const std::int64_t rows = pass.s.rows(), size = rows * c_.d_model;
  LayerActivations<T>& a = activations(pass, i);
  const LayerParameters<const T*>& p = pass.p.layers[i];
  const T* x = a.x.get();               // [rows, d_model]
  T* xn = a.attention_norm.take(size);  // [rows, d_model]
  T* middle = a.middle.take(size);      // [rows, d_model]
  T* mn = a.mlp_norm.take(size);        // [rows, d_model]
  norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, x, p.attention_norm.gain, p.attention_norm.bias, xn,
               a.attention_stats.take(2 * rows));
  attention_block_forward(c_, pass.s, p, table_, xn, a, pass.caches.empty() ? nullptr : &pass.caches[i], middle);
  add(size, x, middle, middle);
  norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, middle, p.mlp_norm.gain, p.mlp_norm.bias, mn,
               a.mlp_stats.take(2 * rows));
  T* next = activations(pass, i + 1).x.take(size);  // [rows, d_model]
  mlp_forward(c_, rows, p, mn, a, next);
  add(size, middle, next, next);
}

template <class T>
void Network<T>::head_forward(const ModelParameters<const T*>& p, std::int64_t rows, const T* x, T* logits) {
  if (c_.tied_head)
    gemm(false, true, rows, c_.vocab_size, c_.d_model, x, c_.d_model, p.token_embedding, c_.d_model, T{0}, logits,
         c_.vocab_size);
  else
    linear_forward<T>(rows, c_.d_model, c_.vocab_size, x, p.head, nullptr, logits);
}

template <class T>
void Network<T>::logits(const ModelParameters<const T*>& p, const Sequences& s, std::span<const std::int32_t> tokens,
                        T* logits) {
  const std::int64_t group = group_size(c_, s.ctx, false);
  for (std::int64_t b = 0; b < s.batch; b += group) {
    const Sequences part = s.part(b, group);
    const T* x = forward({p, part, tokens.subspan(static_cast<std::size_t>(b * s.ctx)), false});
    head_forward(p, part.rows(), x, logits + b * s.ctx * c_.vocab_size);
  }
}

template <class T>
void Network<T>::read(const ModelParameters<const T*>& p, std::span<const std::int32_t> tokens,
                      std::span<KvCache> caches, T* logits) {
  const Sequences s{1, static_cast<std::int64_t>(tokens.size())};
  const T* x = forward({p, s, tokens, false, caches});  // [rows, d_model]
  head_forward(p, 1, x + (s.ctx - 1) * c_.d_model, logits);
}

template <class T>
Loss Network<T>::loss(const ModelParameters<const T*>& p, const Batch& batch, T scale,
                      const ModelParameters<T*>* gradients) {
  const Sequences s{batch.batch, batch.ctx, batch.lengths};
  const std::int64_t group = group_size(c_, s.ctx, gradients != nullptr);
  Loss total;
  for (std::int64_t b = 0; b < s.batch; b += group) {
    const auto offset = static_cast<std::size_t>(b * s.ctx);
    const Pass pass{p, s.part(b, group), batch.tokens.subspan(offset), gradients != nullptr};
    const T* x = forward(pass);                                            // [rows, d_model]
    T* dx = gradients ? w_.dx.take(pass.s.rows() * c_.d_model) : nullptr;  // [rows, d_model]
    const Loss part = head_loss(pass, x, batch.targets.data() + offset, scale, dx, gradients);
    total.sum = b == 0 ? part.sum : total.sum + part.sum;
    total.count += part.count;
    if (gradients) backward(pass, *gradients);
  }
  return total;
}

template <class T>
Loss Network<T>::head_loss(const Pass& pass, const T* x, const std::int32_t* targets, T scale, T* dx,
                           const ModelParameters<T*>* g) {
  const std::int64_t d = c_.d_model, vocab = c_.vocab_size;
  const std::int64_t most = std::max<std::int64_t>(16, kLogitsAtOnce / vocab);
  if (g) std::fill_n(dx, pass.s.rows() * d, T{0});
  Loss total;
  for (std::int64_t b = 0; b < pass.s.batch; ++b) {
    double sum = 0;
    for (std::int64_t t = 0; t < pass.s.length(b); t += most) {
      const std::int64_t first = b * pass.s.ctx + t, rows = std::min(most, pass.s.length(b) - t);
      T* logits = w_.logits.take(rows * vocab);  // [rows, vocab_size], then their gradient
      double* losses = w_.losses.take(rows);     // [rows]
      head_forward(pass.p, rows, x + first * d, logits);
      cross_entropy(rows, vocab, logits, targets + first, g != nullptr, scale, losses);
      for (std::int64_t i = 0; i < rows; ++i) sum += losses[i];
      total.count += std::count_if(targets + first, targets + first + rows, [](std::int32_t y) { return y >= 0; });
      if (!g) continue;
      const Sequences piece{1, rows};
      if (c_.tied_head) {  // logits = x E^T: dx = dlogits E, dE += dlogits^T x
        gemm(false, false, rows, d, vocab, logits, vocab, pass.p.token_embedding, d, T{0}, dx + first * d, d);
        gemm(true, false, vocab, d, rows, logits, vocab, x + first * d, d, T{1}, g->token_embedding, d);
      } else {
        linear_backward_input(rows, d, vocab, logits, pass.p.head, T{0}, dx + first * d);
        linear_backward_weights<T>(piece, d, vocab, x + first * d, logits, g->head, nullptr);
      }
    }
    total.sum += sum;
  }
  return total;
}

template <class T>
void Network<T>::backward(const Pass& pass, const ModelParameters<T*>& g) {
  const std::int64_t rows = pass.s.rows();
  T* dx = w_.dx.get();  // [rows, d_model]
  if (c_.final_norm) {
    const T* x = w_.layers[static_cast<std::size_t>(c_.n_layer)].x.get();  // [rows, d_model]
    norm_backward_parameters(pass.s, c_.d_model, x, w_.final_stats.get(), dx, g.final_norm.gain, g.final_norm.bias);
    norm_backward_input(c_.norm, rows, c_.d_model, x, pass.p.final_norm.gain, w_.final_stats.get(), dx, false, dx);
  }
  for (auto i = static_cast<std::size_t>(c_.n_layer); i-- > 0;) layer_backward(pass, i, g);
  if (c_.embedding_norm) {
    const T* sum = w_.embedding.get();  // [rows, d_model]
    norm_backward_parameters(pass.s, c_.d_model, sum, w_.embedding_stats.get(), dx, g.embedding_norm.gain,
                             g.embedding_norm.bias);
    norm_backward_input(c_.norm, rows, c_.d_model, sum, pass.p.embedding_norm.gain, w_.embedding_stats.get(), dx, false,
                        dx);
  }
  embedding_backward(pass.s, c_.d_model, pass.tokens, dx, g.token_embedding, g.position_embedding);
}

template <class T>
void Network<T>::layer_backward(const Pass& pass, std::size_t i, const ModelParameters<T*>& gradients) {
  const std::int64_t rows = pass.s.rows(), d = c_.d_model;
  LayerActivations<T>& a = w_.layers[i];
  const LayerParameters<const T*>& p = pass.p.layers[i];
  const LayerParameters<T*>& g = gradients.layers[i];
  T* dx = w_.dx.get();                 // [rows, d_model]
  T* dnorm = w_.dnorm.take(rows * d);  // [rows, d_model]
  // x = middle + mlp(norm(middle))
  mlp_backward(c_, pass.s, p, a.mlp_norm.get(), a, dx, w_, dnorm, g);
  norm_backward_parameters(pass.s, d, a.middle.get(), a.mlp_stats.get(), dnorm, g.mlp_norm.gain, g.mlp_norm.bias);
  norm_backward_input(c_.norm, rows, d, a.middle.get(), p.mlp_norm.gain, a.mlp_stats.get(), dnorm, true, dx);
  // middle = x + attention(norm(x))
  attention_block_backward(c_, pass.s, p, table_, a.attention_norm.get(), a, dx, w_, dnorm, g);
  norm_backward_parameters(pass.s, d, a.x.get(), a.attention_stats.get(), dnorm, g.attention_norm.gain,
                           g.attention_norm.bias);
  norm_backward_input(c_.norm, rows, d, a.x.get(), p.attention_norm.gain, a.attention_stats.get(), dnorm, true, dx);
}

template class Network<float>;
template class Network<double>;

}  // namespace qkv
