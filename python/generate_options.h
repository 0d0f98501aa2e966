// SPDX-License-Identifier: Apache-2.0
// Generation options from Python arguments.
#pragma once

#include <nanobind/nanobind.h>
#include <qkv/generate.h>

namespace qkv::python {

// Options by keyword: sampling, shift, keep and stop, and the callbacks.
struct GenerateArguments {
  // Throws nb::type_error for an unknown keyword and for a value of the wrong type.
  GenerateArguments(std::int64_t max_tokens, const nanobind::kwargs& given, bool for_engine);

  GenerateOptions options;
  nanobind::object on_token = nanobind::none(), on_end = nanobind::none();
  bool details = false;
};

// The Python result, Generated. text: None for a prompt of ids.
nanobind::object generated(const GenerateResult& result, const nanobind::object& text);
nanobind::object ids_array(const std::vector<std::int32_t>& tokens);

}  // namespace qkv::python
