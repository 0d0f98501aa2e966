// SPDX-License-Identifier: Apache-2.0
// Whether a run will have memory enough, said before its first step.
#pragma once

#include <string>

#include "qkv/model.h"
#include "qkv/train.h"

namespace qkv::cli {

// "memory: 0.31 GB for a step (...)".
std::string memory_text(const ModelConfig& model, const TrainConfig& config);
// Throws std::runtime_error, with the number needed and options that would fit, if a step will not have the memory.
// length_option: the one that makes sequences shorter.
void check_memory(const ModelConfig& model, const TrainConfig& config, const char* length_option);

}  // namespace qkv::cli
