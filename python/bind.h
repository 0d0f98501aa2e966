// SPDX-License-Identifier: Apache-2.0
// The parts of the module, one file each.
#pragma once

#include <nanobind/nanobind.h>

namespace qkv::python {

void bind_attention(nanobind::module_& m);
void bind_attention_backward(nanobind::module_& m);

}  // namespace qkv::python
