// SPDX-License-Identifier: Apache-2.0
// The members of a model's configuration by name: the one list that config.json and Python go by, in their order.
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

#include "qkv/model.h"

namespace qkv {

// The names of enumerators, in their order.
inline constexpr std::array<std::string_view, 2> kNormNames{"rmsnorm", "layernorm"};
inline constexpr std::array<std::string_view, 4> kActivationNames{"relu", "relu2", "gelu", "swiglu"};
inline constexpr std::array<std::string_view, 2> kPositionsNames{"learned", "rotary"};

// Calls visit(name, member) for each member but rope_scaling, which has members of its own.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, ModelConfig> {
  visit("n_layer", c.n_layer);
  visit("n_head", c.n_head);
  visit("n_kv_head", c.n_kv_head);
  visit("head_dim", c.head_dim);
  visit("v_head_dim", c.v_head_dim);
  visit("d_model", c.d_model);
  visit("d_ff", c.d_ff);
  visit("vocab_size", c.vocab_size);
  visit("ctx_len", c.ctx_len);
  visit("norm", c.norm);
  visit("norm_gain", c.norm_gain);
  visit("norm_bias", c.norm_bias);
  visit("norm_eps", c.norm_eps);
  visit("embedding_norm", c.embedding_norm);
  visit("final_norm", c.final_norm);
  visit("activation", c.activation);
  visit("positions", c.positions);
  visit("rope_theta", c.rope_theta);
  visit("attention_bias", c.attention_bias);
  visit("mlp_bias", c.mlp_bias);
  visit("tied_head", c.tied_head);
}

// The same of rotary scaling.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, RopeScaling> {
  visit("factor", c.factor);
  visit("low_freq_factor", c.low_freq_factor);
  visit("high_freq_factor", c.high_freq_factor);
  visit("original_ctx_len", c.original_ctx_len);
  visit("frequency_factors", c.frequency_factors);
}

}  // namespace qkv
