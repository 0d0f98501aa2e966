// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/block_types.h"
#include "qkv/stored_parameters.h"

namespace qkv {

BlockType block_type_of(StoredType type) noexcept;

}  // namespace qkv
