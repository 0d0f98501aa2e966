// SPDX-License-Identifier: Apache-2.0
// What is to blame for NaN or infinity in a model's results, in words for a message.
#pragma once

#include <string>

#include "qkv/model.h"
#include "qkv/model_state.h"

namespace qkv {

// "parameter 'layers.0.wq': element 3 is not finite", "the f16 KV cache of layer 2 is not finite", or that all of them
// are finite. The parameters of an inference-only model were checked when they were read from their file.
std::string non_finite_cause(const Model& model, const ModelState* state = nullptr);

// Throws NonFiniteError, "[where] expected finite WHAT; found ...", if a contiguous result of the model is not finite.
void require_finite(const char* where, const char* what, const Model& model, const ConstView& result);

}  // namespace qkv
