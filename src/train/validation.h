// SPDX-License-Identifier: Apache-2.0
// Loss on the validation part during training.
#pragma once

#include <cstdint>
#include <functional>

#include "qkv/dataset.h"
#include "qkv/model.h"
#include "qkv/trainer.h"

namespace qkv {

// Loss over consecutive windows of ctx tokens, batch_size at a time: as many as `batches` batches contain, spread
// evenly over the part, or all of them if batches is 0. The part has at least two tokens. Throws StepStopped if `stop`
// returns true before a batch.
Loss validation_loss(Model& model, const TokenPart& part, std::int64_t ctx, std::int64_t batch_size,
                     std::int64_t batches, const std::function<bool()>& stop = {});

}  // namespace qkv
