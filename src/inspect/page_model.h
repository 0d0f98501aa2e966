// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qkv/model_config.h"

namespace qkv {

// Throws std::invalid_argument, naming the layer and the reason, unless the page can show the model: it requires equal
// heads in all layers and scores q . k / sqrt(head_dim) with only a causal mask.
void require_page_model(const ModelConfig& config);

}  // namespace qkv
