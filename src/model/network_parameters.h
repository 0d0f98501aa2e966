// SPDX-License-Identifier: Apache-2.0
// The parameters of a model, by role. visit_parameters() is the one place that settles their names, shapes and order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "qkv/model.h"

namespace qkv {

// P is what stands for a parameter: a pointer to its elements, say; P{} where the configuration has none.
template <class P>
struct NormParameters {
  P gain{};  // [d_model]
  P bias{};  // [d_model]
};

// Products are x W + b with W [in, out].
template <class P>
struct LayerParameters {
  NormParameters<P> attention_norm;
  P wq{}, bq{};  // [d_model, n_head * head_dim],      [n_head * head_dim]
  P wk{}, bk{};  // [d_model, n_kv_head * head_dim],   [n_kv_head * head_dim]
  P wv{}, bv{};  // [d_model, n_kv_head * v_head_dim], [n_kv_head * v_head_dim]
  P wo{}, bo{};  // [n_head * v_head_dim, d_model],    [d_model]
  NormParameters<P> mlp_norm;
  P w_gate{}, b_gate{};  // [d_model, d_ff], [d_ff]; swiglu only
  P w_up{}, b_up{};      // [d_model, d_ff], [d_ff]
  P w_down{}, b_down{};  // [d_ff, d_model], [d_model]
};

template <class P>
struct ModelParameters {
  P token_embedding{};     // [vocab_size, d_model]
  P position_embedding{};  // [ctx_len, d_model]; learned positions only
  NormParameters<P> embedding_norm;
  std::vector<LayerParameters<P>> layers;  // [n_layer]
  NormParameters<P> final_norm;
  P head{};  // [d_model, vocab_size]; absent if tied
};

// Calls visit(name, shape, decays, slot) for each parameter that the resolved configuration has, in the flat order.
template <class P, class Visit>
void visit_parameters(const ModelConfig& c, ModelParameters<P>& p, const Visit& visit) {
  const auto matrix = [&](const std::string& name, std::int64_t in, std::int64_t out, P& slot) {
    visit(name, Dims{in, out}, true, slot);
  };
  const auto vector = [&](bool present, const std::string& name, std::int64_t size, P& slot) {
    if (present) visit(name, Dims{size}, false, slot);
  };
  const auto norm = [&](const std::string& name, NormParameters<P>& slots) {
    vector(c.norm_gain, name + ".gain", c.d_model, slots.gain);
    vector(c.norm_bias, name + ".bias", c.d_model, slots.bias);
  };
  const std::int64_t q_size = c.n_head * c.head_dim, k_size = c.n_kv_head * c.head_dim;
  const std::int64_t v_size = c.n_kv_head * c.v_head_dim, out_size = c.n_head * c.v_head_dim;

  matrix("token_embedding", c.vocab_size, c.d_model, p.token_embedding);
  if (c.positions == Positions::learned) matrix("position_embedding", c.ctx_len, c.d_model, p.position_embedding);
  if (c.embedding_norm) norm("embedding_norm", p.embedding_norm);
  p.layers.resize(static_cast<std::size_t>(c.n_layer));
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    LayerParameters<P>& layer = p.layers[static_cast<std::size_t>(i)];
    const std::string prefix = "layers." + std::to_string(i) + ".";
    norm(prefix + "attention_norm", layer.attention_norm);
    matrix(prefix + "wq", c.d_model, q_size, layer.wq);
    vector(c.qkv_bias, prefix + "bq", q_size, layer.bq);
    matrix(prefix + "wk", c.d_model, k_size, layer.wk);
    vector(c.qkv_bias, prefix + "bk", k_size, layer.bk);
    matrix(prefix + "wv", c.d_model, v_size, layer.wv);
    vector(c.qkv_bias, prefix + "bv", v_size, layer.bv);
    matrix(prefix + "wo", out_size, c.d_model, layer.wo);
    vector(c.output_bias, prefix + "bo", c.d_model, layer.bo);
    norm(prefix + "mlp_norm", layer.mlp_norm);
    if (c.gated) {
      matrix(prefix + "w_gate", c.d_model, c.d_ff, layer.w_gate);
      vector(c.mlp_bias, prefix + "b_gate", c.d_ff, layer.b_gate);
    }
    matrix(prefix + "w_up", c.d_model, c.d_ff, layer.w_up);
    vector(c.mlp_bias, prefix + "b_up", c.d_ff, layer.b_up);
    matrix(prefix + "w_down", c.d_ff, c.d_model, layer.w_down);
    vector(c.mlp_bias, prefix + "b_down", c.d_model, layer.b_down);
  }
  if (c.final_norm) norm("final_norm", p.final_norm);
  if (!c.tied_head) matrix("head", c.d_model, c.vocab_size, p.head);
}

// The elements of `tensors` (one each parameter, in the flat order) by role. T is const for parameters, not const for
// gradients. Throws std::invalid_argument, beginning with [where], if a tensor does not fit.
template <class T, class Tensors>
ModelParameters<T*> by_role(const ModelConfig& c, Tensors& tensors, const char* where);

}  // namespace qkv
