// SPDX-License-Identifier: Apache-2.0
// LLaMA and models with its layers: TinyLlama, SmolLM2, Yi, Mistral models without windows.
#include "formats/families/llama_like.h"

namespace qkv {
namespace {

using R = ParameterRole;

constexpr RoleName kHfNames[] = {{R::token_embedding, "model.embed_tokens.weight"},
                                 {R::attention_norm_gain, "model.layers.{layer}.input_layernorm.weight"},
                                 {R::wq, "model.layers.{layer}.self_attn.q_proj.weight"},
                                 {R::bq, "model.layers.{layer}.self_attn.q_proj.bias"},
                                 {R::wk, "model.layers.{layer}.self_attn.k_proj.weight"},
                                 {R::bk, "model.layers.{layer}.self_attn.k_proj.bias"},
                                 {R::wv, "model.layers.{layer}.self_attn.v_proj.weight"},
                                 {R::bv, "model.layers.{layer}.self_attn.v_proj.bias"},
                                 {R::wo, "model.layers.{layer}.self_attn.o_proj.weight"},
                                 {R::bo, "model.layers.{layer}.self_attn.o_proj.bias"},
                                 {R::mlp_norm_gain, "model.layers.{layer}.post_attention_layernorm.weight"},
                                 {R::w_gate, "model.layers.{layer}.mlp.gate_proj.weight"},
                                 {R::b_gate, "model.layers.{layer}.mlp.gate_proj.bias"},
                                 {R::w_up, "model.layers.{layer}.mlp.up_proj.weight"},
                                 {R::b_up, "model.layers.{layer}.mlp.up_proj.bias"},
                                 {R::w_down, "model.layers.{layer}.mlp.down_proj.weight"},
                                 {R::b_down, "model.layers.{layer}.mlp.down_proj.bias"},
                                 {R::final_norm_gain, "model.norm.weight"},
                                 {R::head, "lm_head.weight"}};

// Defaults for all architectures.
constexpr RoleName kGgufNames[] = {{R::token_embedding, "token_embd.weight"},
                                   {R::position_embedding, "position_embd.weight"},
                                   {R::attention_norm_gain, "blk.{layer}.attn_norm.weight"},
                                   {R::attention_norm_bias, "blk.{layer}.attn_norm.bias"},
                                   {R::wq, "blk.{layer}.attn_q.weight"},
                                   {R::bq, "blk.{layer}.attn_q.bias"},
                                   {R::wk, "blk.{layer}.attn_k.weight"},
                                   {R::bk, "blk.{layer}.attn_k.bias"},
                                   {R::wv, "blk.{layer}.attn_v.weight"},
                                   {R::bv, "blk.{layer}.attn_v.bias"},
                                   {R::wo, "blk.{layer}.attn_output.weight"},
                                   {R::bo, "blk.{layer}.attn_output.bias"},
                                   {R::mlp_norm_gain, "blk.{layer}.ffn_norm.weight"},
                                   {R::mlp_norm_bias, "blk.{layer}.ffn_norm.bias"},
                                   {R::w_gate, "blk.{layer}.ffn_gate.weight"},
                                   {R::b_gate, "blk.{layer}.ffn_gate.bias"},
                                   {R::w_up, "blk.{layer}.ffn_up.weight"},
                                   {R::b_up, "blk.{layer}.ffn_up.bias"},
                                   {R::w_down, "blk.{layer}.ffn_down.weight"},
                                   {R::b_down, "blk.{layer}.ffn_down.bias"},
                                   {R::final_norm_gain, "output_norm.weight"},
                                   {R::final_norm_bias, "output_norm.bias"},
                                   {R::head, "output.weight"}};

constexpr std::string_view kIgnored[] = {".rotary_emb.inv_freq"};  // in old files

void hf(HfKeys& file, ModelConfig& c) {
  hf_llama_like_sizes(file, c, 0, 2048);
  file.flag("attention_bias", c.qkv_bias, false);
  if (file.reads()) c.output_bias = c.qkv_bias;
  file.flag("mlp_bias", c.mlp_bias, false);
  hf_rope(file, c);
}

void gguf(GgufKeys& file, ModelConfig& c) {
  gguf_llama_like(file, c, RopeFactors::tensor);
  file.by_tensors(c.qkv_bias, {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias", "blk.0.attn_qkv.bias"});
  file.by_tensors(c.output_bias, {"blk.0.attn_output.bias"});
  file.by_tensors(c.mlp_bias, {"blk.0.ffn_gate.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"});
  file.only("expert_count", 0);
  file.only("expert_used_count", 0);
}

}  // namespace

constinit const std::span<const RoleName> llama_hf_names = kHfNames, llama_gguf_names = kGgufNames;

extern const Family llama_family;
constinit const Family llama_family{
    .hf_type = "llama",
    .gguf_type = "llama",
    .hf_class = "LlamaForCausalLM",
    .base = llama_like,
    .hf = hf,
    .gguf = gguf,
    .hf_ignored = kIgnored,
    .gguf_pairs = true,
    .gguf_missing_biases = true,
};

}  // namespace qkv
