// SPDX-License-Identifier: Apache-2.0
// GPT-2: LayerNorm, learned positions, biases everywhere. transformers stores the matrices [in, out], with Q, K and V
// in one tensor.
#include "formats/families/llama_like.h"

namespace qkv {
namespace {

using R = ParameterRole;

constexpr RoleName kHfNames[] = {{R::token_embedding, "transformer.wte.weight"},
                                 {R::position_embedding, "transformer.wpe.weight"},
                                 {R::attention_norm_gain, "transformer.h.{layer}.ln_1.weight"},
                                 {R::attention_norm_bias, "transformer.h.{layer}.ln_1.bias"},
                                 {R::wq, "transformer.h.{layer}.attn.c_attn.weight"},
                                 {R::bq, "transformer.h.{layer}.attn.c_attn.bias"},
                                 {R::wk, "transformer.h.{layer}.attn.c_attn.weight"},
                                 {R::bk, "transformer.h.{layer}.attn.c_attn.bias"},
                                 {R::wv, "transformer.h.{layer}.attn.c_attn.weight"},
                                 {R::bv, "transformer.h.{layer}.attn.c_attn.bias"},
                                 {R::wo, "transformer.h.{layer}.attn.c_proj.weight"},
                                 {R::bo, "transformer.h.{layer}.attn.c_proj.bias"},
                                 {R::mlp_norm_gain, "transformer.h.{layer}.ln_2.weight"},
                                 {R::mlp_norm_bias, "transformer.h.{layer}.ln_2.bias"},
                                 {R::w_up, "transformer.h.{layer}.mlp.c_fc.weight"},
                                 {R::b_up, "transformer.h.{layer}.mlp.c_fc.bias"},
                                 {R::w_down, "transformer.h.{layer}.mlp.c_proj.weight"},
                                 {R::b_down, "transformer.h.{layer}.mlp.c_proj.bias"},
                                 {R::final_norm_gain, "transformer.ln_f.weight"},
                                 {R::final_norm_bias, "transformer.ln_f.bias"}};

constexpr std::string_view kIgnored[] = {".attn.bias", ".attn.masked_bias"};  // masks in old files

ModelConfig base() {
  ModelConfig c;
  c.norm = Norm::layernorm;
  c.norm_gain = c.norm_bias = c.final_norm = true;
  c.embedding_norm = false;
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.activation = Activation::gelu;
  c.tied_head = true;
  return c;
}

void hf(HfKeys& file, ModelConfig& c) {
  file.size("n_layer", c.n_layer);
  file.size("n_head", c.n_head);
  file.size("n_embd", c.d_model);
  file.size("n_inner", c.d_ff, 0);
  file.size("n_positions", c.ctx_len, 1024);
  file.note("n_ctx", c.ctx_len);
  file.size("vocab_size", c.vocab_size);
  file.word("activation_function", c.activation,
            {{"gelu_new", Activation::gelu},
             {"gelu_pytorch_tanh", Activation::gelu},
             {"gelu_fast", Activation::gelu},
             {"relu", Activation::relu}});
  file.number("layer_norm_epsilon", c.norm_eps, 1e-5);
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) file.note(key, 0.0);
  file.only("scale_attn_weights", true);
  file.only("scale_attn_by_inverse_layer_idx", false);
  file.only("add_cross_attention", false);
}

void gguf(GgufKeys& file, ModelConfig& c) {
  gguf_sizes(file, c);
  file.positive("attention.layer_norm_epsilon", c.norm_eps);
  if (file.reads()) gguf_head_sizes(file, c);  // llama.cpp requires n_head * head_dim == d_model
}

}  // namespace

extern const Family gpt2_family;
constinit const Family gpt2_family{
    .hf_type = "gpt2",
    .gguf_type = "gpt2",
    .hf_class = "GPT2LMHeadModel",
    .base = base,
    .hf = hf,
    .gguf = gguf,
    .hf_names = kHfNames,
    .hf_ignored = kIgnored,
    .hf_in_out = true,
    .gguf_joined_qkv = true,
};

}  // namespace qkv
