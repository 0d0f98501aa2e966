// SPDX-License-Identifier: Apache-2.0
// Shared by families that follow LLaMA: RMSNorm before each sub-layer and before the head, rotary positions, SwiGLU.
#pragma once

#include "formats/families/family.h"
#include "formats/gguf_config.h"
#include "formats/hf_config.h"

namespace qkv {

ModelConfig llama_like();  // Family::base

// config.json, in the order of LLaMA's files. head_dim: default if the file omits it; 0: hidden_size / heads.
void hf_llama_like_sizes(HfKeys& file, ModelConfig& config, std::int64_t head_dim, std::int64_t ctx_len);
// rope_theta with rope_scaling (transformers version 4) or rope_parameters (version 5). Written in version 4 form.
void hf_rope(HfKeys& file, ModelConfig& config);
// Qwen's windows: use_sliding_window, sliding_window, and layer_types or max_window_layers. Call after all other
// members.
void hf_windows(HfKeys& file, ModelConfig& config);

// GGUF, in the order of LLaMA's files. factors: scaling other than linear is stored in the tensor rope_freqs.weight.
void gguf_sizes(GgufKeys& file, ModelConfig& config);
void gguf_head_sizes(GgufKeys& file, ModelConfig& config);
enum class RopeFactors : std::uint8_t { none, tensor };
void gguf_llama_like(GgufKeys& file, ModelConfig& config, RopeFactors factors);

}  // namespace qkv
