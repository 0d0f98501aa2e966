// SPDX-License-Identifier: Apache-2.0
// What stands behind qkv_model, and the checks that its users share.
#pragma once

#include "c_api/status.h"
#include "qkv/model_file.h"

struct qkv_model {
  qkv::LoadedModel loaded;
};

namespace qkv::c_api {

// The batch as the library takes it. Throws std::invalid_argument for null pointers and sizes below 1.
Batch batch_of(const qkv_batch* batch, bool with_targets, const char* where);

// Tells how many there are and whether they fit. Throws TooSmall.
void check_capacity(std::size_t needed, std::size_t capacity, const char* where);

}  // namespace qkv::c_api
