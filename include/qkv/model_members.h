// SPDX-License-Identifier: Apache-2.0
// The members of a model configuration by name, in order: the single list used by config.json, `info` and Python.
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

#include "qkv/model_config.h"

namespace qkv {

// Names of the enumerators, in order.
template <class E>
inline constexpr std::array<std::string_view, 0> kEnumNames{};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<Norm>{"rmsnorm", "layernorm"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<NormPlace>{"before", "after", "both"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<QkNorm>{"none", "per_head", "all_heads"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<Residual>{"sequential", "parallel", "parallel_shared_norm"};
template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<Activation>{"relu", "relu2", "gelu", "silu", "gelu_erf"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<Positions>{"learned", "rotary", "none"};

template <class E>
std::string_view enum_name(E value) noexcept {
  return kEnumNames<E>[static_cast<std::size_t>(value)];
}

// Calls visit(name, member) for each member of the RoPE scaling.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, RopeScaling> {
  visit("factor", c.factor);
  visit("low_freq_factor", c.low_freq_factor);
  visit("high_freq_factor", c.high_freq_factor);
  visit("original_ctx_len", c.original_ctx_len);
  visit("frequency_factors", c.frequency_factors);
  visit("attention_factor", c.attention_factor);
}

// The same for a layer, except rope_scaling, which has its own members.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, LayerConfig> {
  visit("n_head", c.n_head);
  visit("n_kv_head", c.n_kv_head);
  visit("head_dim", c.head_dim);
  visit("v_head_dim", c.v_head_dim);
  visit("window_left", c.window_left);
  visit("attention_scale", c.attention_scale);
  visit("softcap", c.softcap);
  visit("alibi", c.alibi);
  visit("sinks", c.sinks);
  visit("qk_norm", c.qk_norm);
  visit("qkv_bias", c.qkv_bias);
  visit("output_bias", c.output_bias);
  visit("positions", c.positions);
  visit("rope_theta", c.rope_theta);
  visit("rope_share", c.rope_share);
  visit("d_ff", c.d_ff);
  visit("activation", c.activation);
  visit("gated", c.gated);
  visit("mlp_bias", c.mlp_bias);
  visit("norm", c.norm);
  visit("norm_place", c.norm_place);
  visit("norm_gain", c.norm_gain);
  visit("norm_gain_offset", c.norm_gain_offset);
  visit("norm_bias", c.norm_bias);
  visit("norm_eps", c.norm_eps);
  visit("residual", c.residual);
  visit("residual_scale", c.residual_scale);
}

// The same for a model: its own members, then the inherited layer members; except `layers` and rope_scaling.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, ModelConfig> {
  visit("n_layer", c.n_layer);
  visit("d_model", c.d_model);
  visit("vocab_size", c.vocab_size);
  visit("ctx_len", c.ctx_len);
  visit("embedding_norm", c.embedding_norm);
  visit("final_norm", c.final_norm);
  visit("tied_head", c.tied_head);
  visit("embedding_scale", c.embedding_scale);
  visit("logit_scale", c.logit_scale);
  visit("logit_softcap", c.logit_softcap);
  using Layer = std::conditional_t<std::is_const_v<Config>, const LayerConfig, LayerConfig>;
  for_each_member(static_cast<Layer&>(c), visit);
}

}  // namespace qkv
