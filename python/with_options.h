// SPDX-License-Identifier: Apache-2.0
// The functions that take attention's options, bound: the one list of their names, defaults and types.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace qkv::python {

inline constexpr const char* kOptionTypes =
    "causal: typing.Literal['top_left', 'bottom_right', 'start'] | None = None, start: Integers | None = None, "
    "mask: Array | None = None, scale: float | None = None, softcap: float = 0.0, "
    "window: tuple[int | None, int | None] | None = None, alibi: Array | None = None, sinks: Array | None = None, "
    "q_lengths: Integers | None = None, kv_lengths: Integers | None = None, require_readable_key: bool = False, "
    "_dropout: tuple[float, int] | None = None";

// arrays and more: the arguments before and after the options; their types are what the stub says.
template <class Function, std::size_t Count, class... More>
void def_with_options(nanobind::module_& m, const char* name, const std::string& array_types,
                      const std::string& more_types, const std::string& returns, const char* text, Function function,
                      const std::array<nanobind::arg, Count>& arrays, const More&... more) {
  using nanobind::arg;
  const auto none = [](const char* option) { return arg(option).none() = nanobind::none(); };
  const std::string signature = "def " + std::string(name) + "(" + array_types + ", *, " + kOptionTypes +
                                (more_types.empty() ? "" : ", " + more_types) + ") -> " + returns;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    m.def(name, function, arrays[I]..., nanobind::kw_only(), none("causal"), none("start"), none("mask"), none("scale"),
          arg("softcap") = 0.0, none("window"), none("alibi"), none("sinks"), none("q_lengths"), none("kv_lengths"),
          arg("require_readable_key") = false, none("_dropout"), more..., nanobind::sig(signature.c_str()), text);
  }
  (std::make_index_sequence<Count>());
}

}  // namespace qkv::python
