// SPDX-License-Identifier: Apache-2.0
// Numeric options. CLI11 itself parses an empty value as 0, 010 as 8 and an overflow as the largest value of the type;
// here these are usage errors, or plain decimal numbers.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "cli.h"

namespace qkv::cli {

template <class T>
struct NumberIn {
  using Type = T;
};
template <class T>
struct NumberIn<std::optional<T>> {
  using Type = T;
};

// Rewrites a whole number in plain decimal digits; returns an error message, or "".
template <class T>
std::string whole_number(std::string& text) {
  const std::size_t sign = text.starts_with('+') ? 1 : 0;
  const char* const end = text.data() + text.size();
  T value{};
  const auto [stop, error] = std::from_chars(text.data() + sign, end, value);
  if (error == std::errc() && stop == end && !(sign == 1 && text.starts_with("+-"))) {
    text = std::to_string(value);
    return {};
  }
  std::string range =
      std::to_string(std::numeric_limits<T>::min()) + " to " + std::to_string(std::numeric_limits<T>::max());
  const bool digits = text.find_first_not_of("+-0123456789") == std::string::npos && !text.empty();
  return "expected a whole number" + (digits ? " of " + range : std::string()) + "; found '" + text + "'";
}

// Returns an error message, or "". NaN and infinity are accepted here; options may reject them.
inline std::string real_number(const std::string& text) {
  char* stop = nullptr;
  const double value = std::strtod(text.c_str(), &stop);
  const bool written_out = text.find_first_of("iI") != std::string::npos;  // inf, infinity
  if (text.empty() || text.find_first_of(" \t\n\v\f\r") == 0 || stop != text.c_str() + text.size())
    return "expected a number; found '" + text + "'";
  if (std::isinf(value) && !written_out) return "expected a smaller number; found '" + text + "'";
  return {};
}

template <class Number>
CLI::Validator number_check() {
  static_assert(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>);
  if constexpr (std::is_integral_v<Number>) {
    return CLI::Validator([](std::string& text) { return whole_number<Number>(text); }, "");
  } else {
    return CLI::Validator([](std::string& text) { return real_number(text); }, "");
  }
}

// A finite number of at least 0 or 1, whole or not.
inline CLI::Validator at_least(int least) {
  const auto check = [least](const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return value >= least && std::isfinite(value)
               ? std::string()
               : "expected a number of at least " + std::to_string(least) + "; found '" + text + "'";
  };
  return CLI::Validator(check, least > 0 ? "POSITIVE" : "NONNEGATIVE");
}

// A fraction of the text for validation.
inline CLI::Validator below_one() {
  const auto check = [](const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return value >= 0 && value < 1 ? std::string()
                                   : "expected a number of at least 0 and below 1; found '" + text + "'";
  };
  return CLI::Validator(check, "");
}

// Runs a check of the library on option values and reports its std::invalid_argument as a UsageError.
template <class Check>
auto asked(const Check& check) {
  try {
    return check();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

// Adds an option for `value`, a number or an optional number.
template <class T>
CLI::Option* add_number(CLI::App& command, const std::string& names, T& value, const std::string& help) {
  return command.add_option(names, value, help)->transform(number_check<typename NumberIn<T>::Type>());
}

}  // namespace qkv::cli
