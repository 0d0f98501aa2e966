// SPDX-License-Identifier: Apache-2.0
// Qwen2, Qwen2.5 and models distilled into them: LLaMA with biases of Q, K and V, and windows in some layers.
#include "formats/families/llama_like.h"

namespace qkv {
namespace {

ModelConfig base() {
  ModelConfig c = llama_like();
  c.qkv_bias = true;
  return c;
}

void hf(HfKeys& file, ModelConfig& c) {
  hf_llama_like_sizes(file, c, 0, 32768);
  hf_rope(file, c);
  hf_windows(file, c);
}

void gguf(GgufKeys& file, ModelConfig& c) { gguf_llama_like(file, c, RopeFactors::none); }

}  // namespace

extern const Family qwen2_family;
constinit const Family qwen2_family{
    .hf_type = "qwen2",
    .gguf_type = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .base = base,
    .hf = hf,
    .gguf = gguf,
};

}  // namespace qkv
