// SPDX-License-Identifier: Apache-2.0
// Binds functions that take the attention options of qkv/attention_members.h.
#pragma once

#include <nanobind/nanobind.h>
#include <qkv/attention.h>
#include <qkv/attention_members.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace qkv::python {

// The options for the type stub: keywords, types and defaults.
inline std::string option_types() {
  std::string types =
      "causal: typing.Literal['top_left', 'bottom_right', 'start'] | None = None, start: Integers | None = None, "
      "window: tuple[int | None, int | None] | None = None";
  AttentionOptions unset;
  for_each_other_option(
      [&]<class T>(const OptionText& option, const T&) {
        types += ", " + std::string(option.keyword) + ": ";
        if constexpr (std::is_same_v<T, bool>)
          types += "bool = False";
        else if constexpr (std::is_same_v<T, double>)
          types += "float = 0.0";
        else if constexpr (std::is_same_v<T, std::optional<double>>)
          types += "float | None = None";
        else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
          types += "Integers | None = None";
        else if constexpr (std::is_same_v<T, ConstView>)
          types += "Array | None = None";
        else
          types += "tuple[float, int] | None = None";
      },
      unset);
  return types;
}

// arrays and more: the arguments before and after the options; array_types and more_types: their types in the stub. The
// function's last argument is nb::kwargs, for the options.
template <class Function, std::size_t Count, class... More>
void def_with_options(nanobind::module_& m, const char* name, const std::string& array_types,
                      const std::string& more_types, const std::string& returns, const char* text, Function function,
                      const std::array<nanobind::arg, Count>& arrays, const More&... more) {
  const std::string signature = "def " + std::string(name) + "(" + array_types + ", *, " + option_types() +
                                (more_types.empty() ? "" : ", " + more_types) + ") -> " + returns;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto define = [&](const auto&... rest) {
      m.def(name, function, arrays[I]..., rest..., nanobind::arg("options"), nanobind::sig(signature.c_str()), text);
    };
    if constexpr (sizeof...(More) > 0)
      define(nanobind::kw_only(), more...);
    else
      define();
  }
  (std::make_index_sequence<Count>());
}

}  // namespace qkv::python
