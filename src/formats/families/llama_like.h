// SPDX-License-Identifier: Apache-2.0
// What families that follow LLaMA share: RMSNorm before each sub-layer and before the head, rotary positions, SwiGLU.
#pragma once

#include "formats/families/family.h"
#include "formats/gguf_config.h"
#include "formats/hf_config.h"

namespace qkv {

ModelConfig llama_like();  // Family::base

// config.json, in the order of LLaMA's files. head_dim: of files that do not say it; 0: hidden_size / heads.
void hf_llama_like_sizes(HfKeys& file, ModelConfig& config, std::int64_t head_dim, std::int64_t ctx_len);
// rope_theta with rope_scaling (version 4 of transformers) or rope_parameters (version 5). Written as version 4 has it.
void hf_rope(HfKeys& file, ModelConfig& config);
// Qwen's windows: use_sliding_window, sliding_window, and layer_types or max_window_layers. After all other members.
void hf_windows(HfKeys& file, ModelConfig& config);

// GGUF, in the order of LLaMA's files. factors: other scaling of frequencies than linear is a tensor,
// rope_freqs.weight.
void gguf_sizes(GgufKeys& file, ModelConfig& config);
void gguf_head_sizes(GgufKeys& file, ModelConfig& config);
enum class RopeFactors : std::uint8_t { none, tensor };
void gguf_llama_like(GgufKeys& file, ModelConfig& config, RopeFactors factors);

}  // namespace qkv
