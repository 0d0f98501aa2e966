// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qkv/model_config.h"

namespace qkv {

// Throws std::invalid_argument, with the layer and what it has, unless the page can show the model: its figures are of
// equal heads in every layer, and its scores are q . k / sqrt(head_dim), masked by position alone.
void require_page_model(const ModelConfig& config);

}  // namespace qkv
