// SPDX-License-Identifier: Apache-2.0
// How well a model in training predicts its validation part.
#pragma once

#include <cstdint>

#include "qkv/dataset.h"
#include "qkv/model.h"

namespace qkv {

// Of windows of ctx tokens, laid end to end, batch_size at a time: as many as `batches` batches hold, spread evenly
// over the part, or all of them if batches is 0. The part has at least two tokens.
Loss validation_loss(Model& model, const TokenPart& part, std::int64_t ctx, std::int64_t batch_size,
                     std::int64_t batches);

}  // namespace qkv
