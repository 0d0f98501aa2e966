// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters: Hu et al., "LoRA: low-rank adaptation of large language models", 2021.
//
// A matrix W [in, out] of a model that stays as it is becomes W + scale * A^T B^T with A [rank, in] and B [out, rank];
// as PEFT writes it, with W^T: W^T + scale * B A. A begins random and B at 0, so that nothing is changed at first.
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
  // Matrices of every layer, by qkv's names: wq wk wv wo w_gate w_up w_down. gpt2's wq, wk and wv are one matrix to
  // PEFT and to others, so they go together.
  std::vector<std::string> targets = {"wq", "wk", "wv", "wo"};
};

// What one pair of A and B changes.
struct LoraModule {
  std::string name;                     // as PEFT has it: "model.layers.0.self_attn.q_proj"
  std::vector<std::size_t> parameters;  // numbers in the flat order; several lie side by side, [in, out_1 + out_2 ...]
};

struct LoraAdapters {
  std::int64_t rank = 0;
  double alpha = 0;
  double scale = 0;                 // alpha / rank, or alpha / sqrt(rank) where a file asks for it (use_rslora)
  std::string base;                 // the model they were made for, as the files say it; may be empty
  std::vector<LoraModule> modules;  // in the order of the parameters
  std::vector<Tensor> values;       // [2 * modules]: A [rank, in] and B [out, rank] of each, all f32 or all f64
  std::string tensor_name(std::size_t value) const;  // "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
};

// New adapters: A uniform in +-1 / sqrt(in), as PEFT begins, drawn from the seed; B zeros. dtype: f32 or f64. Throws
// std::invalid_argument for a rank or alpha that is not above 0, a rank above the smaller side of a matrix, and targets
// that the configuration does not have.
LoraAdapters make_lora(const ModelConfig& config, const LoraOptions& options, std::uint64_t seed = 0,
                       DType dtype = DType::f32);

// Adds the change to a model of the adapters' dtype. Where it is 0 not a bit changes. Throws std::invalid_argument if
// they do not fit. The same bits at any thread count.
void add_lora(Model& model, const LoraAdapters& adapters);

// adapter_config.json and adapter_model.safetensors in a directory, as PEFT writes and reads them. save_lora replaces
// each file atomically and writes F32. load_lora takes F32, F16, BF16 and F64 for the given configuration; it throws
// qkv::FileError for what is malformed, does not fit, or is asked for and not done here (DoRA, biases, other modules
// saved along, ranks that differ by module).
void save_lora(const std::string& directory, const ModelConfig& config, const LoraAdapters& adapters);
LoraAdapters load_lora(const std::string& directory, const ModelConfig& config);

}  // namespace qkv
