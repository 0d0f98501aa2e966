// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters: Hu et al., "LoRA: low-rank adaptation of large language models", 2021.
//
// A frozen model matrix W [in, out] becomes W + scale * A^T B^T with A [rank, in] and B [out, rank]; in PEFT's
// notation, with W^T: W^T + scale * B A. A starts random and B at 0, so that the initial change is 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/model.h"

namespace qkv {

struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;  // scale = alpha / rank
  // Matrices of every layer, by qkv's names: wq wk wv wo w_gate w_up w_down. For gpt2, wq, wk and wv are one matrix in
  // PEFT, so they must be given together.
  std::vector<std::string> targets = {"wq", "wk", "wv", "wo"};
};

// The matrix that one pair of A and B adapts.
struct LoraModule {
  std::string name;                     // in PEFT: "model.layers.0.self_attn.q_proj"
  std::vector<std::size_t> parameters;  // flat indices; several are concatenated, [in, out_1 + out_2 ...]
};

struct LoraAdapters {
  std::int64_t rank = 0;
  double alpha = 0;
  double scale = 0;                 // alpha / rank, or alpha / sqrt(rank) with use_rslora in a file
  std::string base;                 // base model name from the files; may be empty
  std::vector<LoraModule> modules;  // in the order of the parameters
  std::vector<Tensor> values;       // [2 * modules]: A [rank, in] and B [out, rank] per module, all f32 or all f64
  std::string tensor_name(std::size_t value) const;  // "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
};

// New adapters: A is random, uniform in +-1 / sqrt(in) as in PEFT; B is 0. dtype: f32 or f64. Throws
// std::invalid_argument for a rank or alpha <= 0, a rank above the smaller side of a matrix, and targets that the
// configuration does not have.
LoraAdapters make_lora(const ModelConfig& config, const LoraOptions& options, std::uint64_t seed = 0,
                       DType dtype = DType::f32);

// Merges the adapters into a model of the same dtype. Elements with a change of 0 keep their bits. Throws
// std::invalid_argument if the adapters do not match the model. Bit-identical at any thread count.
void add_lora(Model& model, const LoraAdapters& adapters);

// adapter_config.json and adapter_model.safetensors in a directory, in PEFT's format. save_lora replaces each file
// atomically and writes F32. load_lora reads F32, F16, BF16 and F64 for the given configuration; it throws
// qkv::FileError for malformed or mismatched files and unsupported features (DoRA, biases, additional saved modules,
// ranks that differ by module).
void save_lora(const std::string& directory, const ModelConfig& config, const LoraAdapters& adapters);
LoraAdapters load_lora(const std::string& directory, const ModelConfig& config);

}  // namespace qkv
