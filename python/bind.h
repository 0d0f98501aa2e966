// SPDX-License-Identifier: Apache-2.0
// Registers the parts of the module, one file each.
#pragma once

#include <nanobind/nanobind.h>

namespace qkv::python {

void bind_attention(nanobind::module_& m);
void bind_attention_backward(nanobind::module_& m);
void bind_kv_cache(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);
struct PythonModel;
void bind_model(nanobind::module_& m);
void bind_generate(nanobind::class_<PythonModel>& model);
void bind_engine(nanobind::module_& m);
void bind_trainer(nanobind::module_& m);
void bind_inspect(nanobind::module_& m);

}  // namespace qkv::python
