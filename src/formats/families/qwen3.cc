// SPDX-License-Identifier: Apache-2.0
// Qwen3: LLaMA with QK-norm per head, an independent head_dim, and windows in some layers.
#include "formats/families/llama_like.h"

namespace qkv {
namespace {

using R = ParameterRole;

constexpr RoleName kHfNames[] = {{R::q_norm_gain, "model.layers.{layer}.self_attn.q_norm.weight"},
                                 {R::k_norm_gain, "model.layers.{layer}.self_attn.k_norm.weight"}};
constexpr RoleName kGgufNames[] = {{R::q_norm_gain, "blk.{layer}.attn_q_norm.weight"},
                                   {R::k_norm_gain, "blk.{layer}.attn_k_norm.weight"}};

ModelConfig base() {
  ModelConfig c = llama_like();
  c.qk_norm = QkNorm::per_head;
  return c;
}

void hf(HfKeys& file, ModelConfig& c) {
  hf_llama_like_sizes(file, c, 128, 32768);
  file.flag("attention_bias", c.qkv_bias, false);
  if (file.reads()) c.output_bias = c.qkv_bias;
  hf_rope(file, c);
  hf_windows(file, c);
}

void gguf(GgufKeys& file, ModelConfig& c) {
  gguf_llama_like(file, c, RopeFactors::none);
  file.by_tensors(c.qkv_bias, {"blk.0.attn_q.bias"});
}

}  // namespace

extern const Family qwen3_family;
constinit const Family qwen3_family{
    .hf_type = "qwen3",
    .gguf_type = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .base = base,
    .hf = hf,
    .gguf = gguf,
    .hf_names = kHfNames,
    .gguf_names = kGgufNames,
};

}  // namespace qkv
