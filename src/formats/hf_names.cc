// SPDX-License-Identifier: Apache-2.0
#include "formats/hf_names.h"

#include <stdexcept>

namespace qkv {
namespace {

struct Name {
  std::string_view ours, theirs;
};
// Of the whole model, then of layer N. What is not transposed is stored as qkv has it.
constexpr Name kGpt2[] = {{"token_embedding", "transformer.wte.weight"},
                          {"position_embedding", "transformer.wpe.weight"},
                          {"final_norm.gain", "transformer.ln_f.weight"},
                          {"final_norm.bias", "transformer.ln_f.bias"},
                          {"head", "lm_head.weight"}};
constexpr Name kGpt2Layer[] = {{"attention_norm.gain", "ln_1.weight"},
                               {"attention_norm.bias", "ln_1.bias"},
                               {"wq", "attn.c_attn.weight"},
                               {"bq", "attn.c_attn.bias"},
                               {"wk", "attn.c_attn.weight"},
                               {"bk", "attn.c_attn.bias"},
                               {"wv", "attn.c_attn.weight"},
                               {"bv", "attn.c_attn.bias"},
                               {"wo", "attn.c_proj.weight"},
                               {"bo", "attn.c_proj.bias"},
                               {"mlp_norm.gain", "ln_2.weight"},
                               {"mlp_norm.bias", "ln_2.bias"},
                               {"w_up", "mlp.c_fc.weight"},
                               {"b_up", "mlp.c_fc.bias"},
                               {"w_down", "mlp.c_proj.weight"},
                               {"b_down", "mlp.c_proj.bias"}};
constexpr Name kLlama[] = {{"token_embedding", "model.embed_tokens.weight"},
                           {"final_norm.gain", "model.norm.weight"},
                           {"head", "lm_head.weight"}};
constexpr Name kLlamaLayer[] = {{"attention_norm.gain", "input_layernorm.weight"},
                                {"wq", "self_attn.q_proj.weight"},
                                {"bq", "self_attn.q_proj.bias"},
                                {"wk", "self_attn.k_proj.weight"},
                                {"bk", "self_attn.k_proj.bias"},
                                {"wv", "self_attn.v_proj.weight"},
                                {"bv", "self_attn.v_proj.bias"},
                                {"wo", "self_attn.o_proj.weight"},
                                {"bo", "self_attn.o_proj.bias"},
                                {"mlp_norm.gain", "post_attention_layernorm.weight"},
                                {"w_gate", "mlp.gate_proj.weight"},
                                {"b_gate", "mlp.gate_proj.bias"},
                                {"w_up", "mlp.up_proj.weight"},
                                {"b_up", "mlp.up_proj.bias"},
                                {"w_down", "mlp.down_proj.weight"},
                                {"b_down", "mlp.down_proj.bias"}};

template <std::size_t kCount>
std::string_view look_up(const Name (&names)[kCount], std::string_view ours) {
  for (const Name& name : names)
    if (name.ours == ours) return name.theirs;
  throw std::invalid_argument("[hugging face] expected a parameter of the family; found " + std::string(ours));
}

constexpr std::string_view kLayers = "layers.";

}  // namespace

HfPlace hf_place(HfFamily family, const ModelConfig& c, const ParameterInfo& info) {
  const bool gpt2 = family == HfFamily::gpt2;
  const std::string_view name = info.name;
  const bool matrix = info.shape.rank() == 2;
  HfPlace place;
  place.shape = info.shape;
  if (!name.starts_with(kLayers)) {
    place.name = gpt2 ? look_up(kGpt2, name) : look_up(kLlama, name);
    place.transposed = name == "head";
    if (place.transposed) place.shape = {info.shape[1], info.shape[0]};
    return place;
  }
  const std::size_t dot = name.find('.', kLayers.size());
  const std::string number(name.substr(kLayers.size(), dot - kLayers.size()));
  const std::string_view rest = name.substr(dot + 1);
  if (gpt2) {
    place.name = "transformer.h." + number + "." + std::string(look_up(kGpt2Layer, rest));
    const bool fused = rest == "wq" || rest == "wk" || rest == "wv" || rest == "bq" || rest == "bk" || rest == "bv";
    if (!fused) return place;
    place.first = c.d_model * (rest[1] == 'k' ? 1 : rest[1] == 'v' ? 2 : 0);
    place.shape = matrix ? Dims{c.d_model, 3 * c.d_model} : Dims{3 * c.d_model};
    return place;
  }
  place.name = "model.layers." + number + "." + std::string(look_up(kLlamaLayer, rest));
  place.transposed = matrix;
  if (matrix) place.shape = {info.shape[1], info.shape[0]};
  return place;
}

std::string_view hf_prefix(HfFamily family) noexcept { return family == HfFamily::gpt2 ? "transformer." : "model."; }

bool hf_is_ignored(HfFamily family, std::string_view name) noexcept {
  if (family == HfFamily::gpt2) return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  return name.ends_with(".rotary_emb.inv_freq");
}

ConstView hf_part(const HfPlace& place, const ParameterInfo& info, ConstView stored) noexcept {
  if (place.transposed) return swap_axes(stored, 0, 1);
  stored.data =
      static_cast<const std::byte*>(stored.data) + place.first * static_cast<std::int64_t>(dtype_size(stored.dtype));
  stored.shape = info.shape;
  return stored;
}

}  // namespace qkv
