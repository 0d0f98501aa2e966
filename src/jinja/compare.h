// SPDX-License-Identifier: Apache-2.0
// Order and membership; equality is in value.h.
#pragma once

#include "jinja/value.h"

namespace qkv::jinja {

int compare(const Value& a, const Value& b, int depth = 0);  // < 0, 0, > 0; throws std::invalid_argument
bool contains(const Value& in, const Value& item);

}  // namespace qkv::jinja
