// SPDX-License-Identifier: Apache-2.0
// Whether a run will have memory enough, said before its first step.
#pragma once

#include <string>

#include "qkv/model.h"
#include "qkv/train.h"

namespace qkv::cli {

// "memory: 0.31 GB for a step (...)".
std::string memory_text(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters);
// Throws std::runtime_error, with the number needed and options that would fit, if a step will not have the memory.
// adapters: null where all parameters are trained. length_option: the one that makes sequences shorter.
void check_memory(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters,
                  const char* length_option);

// Elements of the matrices that adapters change.
std::int64_t adapted_elements(const ModelConfig& model, const LoraAdapters& adapters);

}  // namespace qkv::cli
