// SPDX-License-Identifier: Apache-2.0
// Definition of qkv_model, and checks shared by its users.
#pragma once

#include "c_api/status.h"
#include "qkv/model_file.h"

struct qkv_model {
  qkv::LoadedModel loaded;
};

namespace qkv::c_api {

// Converts a batch. Throws std::invalid_argument for null pointers and sizes below 1.
Batch batch_of(const qkv_batch* batch, bool with_targets, const char* where);

// Throws TooSmall if `needed` exceeds the capacity.
void check_capacity(std::size_t needed, std::size_t capacity, const char* where);

}  // namespace qkv::c_api
