// SPDX-License-Identifier: Apache-2.0
// The backward pass, in the reverse order of network.cc.
#include "model/attention_block.h"
#include "model/embedding.h"
#include "model/mlp.h"
#include "model/network.h"
#include "model/network_pass.h"
#include "model/norm.h"

namespace qkv {

// w_.dx holds the gradient of the head's input.
template <class T, class S>
void Network<T, S>::backward(const Pass& pass, const GradientSlots<T>& g) {
  const std::int64_t rows = pass.s.rows(), d = c_.d_model;
  T* dx = w_.dx.get();  // [rows, d_model]
  // y = norm(x): the norm's parameters, then its input, whose gradient replaces that of y.
  const auto through_norm = [&](const T* x, const T* statistics, const NormParameters<const T*>& p, auto role_norm) {
    const PartTimer timer(profile_, &ModelProfile::norms);
    norm_backward_parameters<T>(pass.s, g.steps, d, x, statistics, dx,
                                g.of([&](auto& role) { return role_norm(role).gain; }),
                                g.of([&](auto& role) { return role_norm(role).bias; }));
    norm_backward_input(c_.norm, rows, d, x, p.gain, statistics, static_cast<const T*>(dx), false, dx);
  };
  if (c_.final_norm)
    through_norm(
        w_.layers[static_cast<std::size_t>(c_.n_layer)].x.get(), w_.final_stats.get(), pass.p.final_norm,
        [](auto& role) -> auto& { return role.final_norm; });
  for (auto i = static_cast<std::size_t>(c_.n_layer); i-- > 0;) layer_backward(pass, i, g);
  if (c_.embedding_norm)
    through_norm(
        w_.embedding.get(), w_.embedding_stats.get(), pass.p.embedding_norm,
        [](auto& role) -> auto& { return role.embedding_norm; });
  const PartTimer timer(profile_, &ModelProfile::embedding);
  embedding_backward<T>(pass.s, d, c_.vocab_size, c_.ctx_len, pass.tokens, dx, g);
}

// What the forward pass did not keep of a layer, from x and heads; the same bits.
template <class T, class S>
void Network<T, S>::remake(const Pass& pass, std::size_t i) {
  const std::int64_t rows = pass.s.rows(), size = rows * c_.d_model;
  LayerActivations<T, S>& a = w_.layers[i];
  RemadeActivations<T, S>& r = w_.remade;
  const LayerParameters<const T*>& p = pass.p.layers[i];
  const PreparedLayer<T>& w = prepared_.layers[i];
  T* delta = w_.delta.take(size);  // [rows, d_model]
  {
    const PartTimer timer(profile_, &ModelProfile::projections);
    w.wo.forward(rows, static_cast<const S*>(a.heads.get()), p.bo, delta);
  }
  drop(pass, i, DropoutKind::attention_residual, delta);
  {
    const PartTimer timer(profile_, &ModelProfile::norms);
    norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, static_cast<const T*>(a.x.get()), p.attention_norm.gain,
                 p.attention_norm.bias, r.attention_norm.get(), r.attention_stats.get());
    add_norm_forward(c_.norm, c_.norm_eps, rows, c_.d_model, static_cast<const T*>(a.x.get()),
                     static_cast<const T*>(delta), p.mlp_norm.gain, p.mlp_norm.bias, r.middle.get(), r.mlp_norm.get(),
                     r.mlp_stats.get());
  }
  const PartTimer timer(profile_, &ModelProfile::mlp);
  mlp_activation(c_, rows, w, static_cast<const S*>(r.mlp_norm.get()), r);
}

// The stream's gradient as the operand that a block's backward pass begins with, [rows, d_model].
template <class T, class S>
const S* Network<T, S>::dropped_operand(const Pass& pass, std::size_t layer, DropoutKind kind) {
  const PartTimer timer(profile_, &ModelProfile::norms);
  const std::int64_t size = pass.s.rows() * c_.d_model;
  const T* dx = w_.dx.get();  // [rows, d_model]
  const Dropout dropout = pass.at(layer, kind);
  if (!dropout) return as_operand(size, dx, w_.dy);
  S* dy = w_.dy.take(size);
  drop_sequences(dropout, pass.s, pass.first_sequence, c_.ctx_len, c_.d_model, dx, dy);
  return dy;
}

template <class T, class S>
void Network<T, S>::layer_backward(const Pass& pass, std::size_t i, const GradientSlots<T>& g) {
  const std::int64_t rows = pass.s.rows(), d = c_.d_model, size = rows * d;
  if (recompute_) remake(pass, i);
  LayerActivations<T, S>& a = w_.layers[i];
  RemadeActivations<T, S>& r = remade(pass, i);
  const LayerParameters<const T*>& p = pass.p.layers[i];
  const PreparedLayer<T>& w = prepared_.layers[i];
  T* dx = w_.dx.get();             // [rows, d_model]
  T* dnorm = w_.dnorm.take(size);  // [rows, d_model]
  // x = middle + block(norm(middle)): dx += the gradient through the norm.
  const auto through_norm = [&](const T* x, const T* statistics, const NormParameters<const T*>& norm, auto member) {
    const PartTimer timer(profile_, &ModelProfile::norms);
    norm_backward_parameters<T>(pass.s, g.steps, d, x, statistics, dnorm,
                                g.of([&](auto& role) { return (role.layers[i].*member).gain; }),
                                g.of([&](auto& role) { return (role.layers[i].*member).bias; }));
    norm_backward_input(c_.norm, rows, d, x, norm.gain, statistics, static_cast<const T*>(dnorm), true, dx);
  };
  {
    const S* dy = dropped_operand(pass, i, DropoutKind::mlp_residual);
    const PartTimer timer(profile_, &ModelProfile::mlp);
    mlp_backward(c_, pass.s, i, w, static_cast<const S*>(r.mlp_norm.get()), r, dy, w_, dnorm, g);
  }
  through_norm(r.middle.get(), r.mlp_stats.get(), p.mlp_norm, &LayerParameters<T*>::mlp_norm);
  attention_block_backward(c_, pass.s, i, w, table_, static_cast<const S*>(r.attention_norm.get()), a,
                           dropped_operand(pass, i, DropoutKind::attention_residual), w_, pass.of_attention(i),
                           profile_, dnorm, g);
  through_norm(a.x.get(), r.attention_stats.get(), p.attention_norm, &LayerParameters<T*>::attention_norm);
}

template const float* Network<float, float>::dropped_operand(const Pass&, std::size_t, DropoutKind);
template const bf16* Network<float, bf16>::dropped_operand(const Pass&, std::size_t, DropoutKind);
template const double* Network<double, double>::dropped_operand(const Pass&, std::size_t, DropoutKind);
template void Network<float, float>::remake(const Pass&, std::size_t);
template void Network<float, float>::layer_backward(const Pass&, std::size_t, const GradientSlots<float>&);
template void Network<float, bf16>::remake(const Pass&, std::size_t);
template void Network<float, bf16>::layer_backward(const Pass&, std::size_t, const GradientSlots<float>&);
template void Network<double, double>::remake(const Pass&, std::size_t);
template void Network<double, double>::layer_backward(const Pass&, std::size_t, const GradientSlots<double>&);
template void Network<float, float>::backward(const Pass&, const GradientSlots<float>&);
template void Network<float, bf16>::backward(const Pass&, const GradientSlots<float>&);
template void Network<double, double>::backward(const Pass&, const GradientSlots<double>&);

}  // namespace qkv
