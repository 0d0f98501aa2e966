// SPDX-License-Identifier: Apache-2.0
// Checks, before the first step, whether a run fits in memory.
#pragma once

#include <string>

#include "qkv/model.h"
#include "qkv/train.h"

namespace qkv::cli {

// "memory per step: 0.31 GB (...)".
std::string memory_text(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters);
// Throws std::runtime_error, with the memory needed and options that would fit, if a step does not fit in memory.
// adapters: null if all parameters are trained. length_option: the option that shortens sequences.
void check_memory(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters,
                  const char* length_option);

// Total number of elements of the adapted matrices.
std::int64_t adapted_elements(const ModelConfig& model, const LoraAdapters& adapters);

}  // namespace qkv::cli
