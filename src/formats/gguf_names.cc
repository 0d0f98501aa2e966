// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_names.h"

#include <stdexcept>
#include <string_view>

namespace qkv {
namespace {

constexpr std::string_view kLayers = "layers.";

struct Name {
  std::string_view ours, theirs;
};
// Outside the layers, and inside.
constexpr Name kOutside[] = {
    {"token_embedding", "token_embd.weight"},
    {"position_embedding", "position_embd.weight"},
    {"final_norm.gain", "output_norm.weight"},
    {"final_norm.bias", "output_norm.bias"},
    {"head", "output.weight"},
};
constexpr Name kInside[] = {
    {"attention_norm.gain", "attn_norm.weight"},
    {"attention_norm.bias", "attn_norm.bias"},
    {"wq", "attn_q.weight"},
    {"bq", "attn_q.bias"},
    {"wk", "attn_k.weight"},
    {"bk", "attn_k.bias"},
    {"wv", "attn_v.weight"},
    {"bv", "attn_v.bias"},
    {"wo", "attn_output.weight"},
    {"bo", "attn_output.bias"},
    {"mlp_norm.gain", "ffn_norm.weight"},
    {"mlp_norm.bias", "ffn_norm.bias"},
    {"w_gate", "ffn_gate.weight"},
    {"b_gate", "ffn_gate.bias"},
    {"w_up", "ffn_up.weight"},
    {"b_up", "ffn_up.bias"},
    {"w_down", "ffn_down.weight"},
    {"b_down", "ffn_down.bias"},
};

template <std::size_t kCount>
std::string find(const Name (&names)[kCount], std::string_view ours) {
  for (const Name& name : names)
    if (name.ours == ours) return std::string(name.theirs);
  throw std::invalid_argument("[gguf] expected a parameter of llama or gpt2; found " + std::string(ours));
}

// The name of a parameter within its layer: "wq" for "layers.3.wq".
std::string_view within_layer(std::string_view name) { return name.substr(name.find('.', kLayers.size()) + 1); }

}  // namespace

std::string gguf_layer_prefix(const std::string& parameter) {
  if (!parameter.starts_with(kLayers)) return "";
  return "blk." + parameter.substr(kLayers.size(), parameter.find('.', kLayers.size()) + 1 - kLayers.size());
}

GgufPlace gguf_place(GgufFamily family, const ModelConfig& c, const ParameterInfo& info, bool joined) {
  const bool matrix = info.shape.rank() == 2, inside = info.name.starts_with(kLayers);
  const std::string_view ours = inside ? within_layer(info.name) : std::string_view(info.name);
  GgufPlace place;
  place.tensor = inside ? gguf_layer_prefix(info.name) + find(kInside, ours) : find(kOutside, ours);
  place.transposed = matrix && !ours.ends_with("embedding");
  place.count = info.shape[place.transposed ? 1 : 0];
  const bool is_q = ours == "wq" || ours == "bq", is_k = ours == "wk" || ours == "bk",
             is_v = ours == "wv" || ours == "bv";
  if (family == GgufFamily::llama) {
    if (is_q || is_k) place.head_dim = c.head_dim;
    place.may_be_missing = inside && ours.starts_with('b');
  }
  std::int64_t all = place.count;
  if (joined && (is_q || is_k || is_v)) {
    const std::int64_t q = c.n_head * c.head_dim, k = c.n_kv_head * c.head_dim, v = c.n_kv_head * c.v_head_dim;
    place.tensor = gguf_layer_prefix(info.name) + (matrix ? "attn_qkv.weight" : "attn_qkv.bias");
    place.first = is_q ? 0 : is_k ? q : q + k;
    all = q + k + v;
  }
  if (matrix)
    place.dims = {info.shape[place.transposed ? 0 : 1], all};
  else
    place.dims = {all};
  return place;
}

}  // namespace qkv
