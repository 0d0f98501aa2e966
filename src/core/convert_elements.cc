// SPDX-License-Identifier: Apache-2.0
#include "core/convert_elements.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/float_types.h"
#include "core/parallel.h"
#include "qkv/convert.h"

namespace qkv {
namespace {

// Converts f64 via f32 only if the other type is narrower than f32.
template <class To, class From>
To convert(From x) noexcept {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, double>)
    return narrow<To>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, double>)
    return static_cast<double>(widen(x));
  else
    return narrow<To>(widen(x));
}

template <class From, class To>
void convert_rows(const ConstView& from, const View& to) {
  constexpr std::int64_t kTile = 64;  // rows and columns, so that a transposed source is read in whole cache lines
  const int rank = from.rank();       // 0 to 2
  const std::int64_t rows = rank == 2 ? from.shape[0] : 1, columns = rank == 0 ? 1 : from.shape[rank - 1];
  const std::int64_t down = rank == 2 ? from.strides[0] : 0, across = rank == 0 ? 1 : from.strides[rank - 1];
  const std::int64_t to_down = rank == 2 ? to.strides[0] : 0, to_across = rank == 0 ? 1 : to.strides[rank - 1];
  const auto* base = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<To*>(to.data);
  const std::int64_t bands = (columns + kTile - 1) / kTile;
  parallel_for((rows + kTile - 1) / kTile, [&](std::int64_t task) {
    const std::int64_t begin = task * kTile, end = std::min(rows, begin + kTile);
    for (std::int64_t band = 0; band < bands; ++band) {
      const std::int64_t left = band * kTile, right = std::min(columns, left + kTile);
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = left; j < right; ++j) {
          From x;
          std::memcpy(&x, base + (i * down + j * across) * static_cast<std::int64_t>(sizeof x), sizeof x);
          target[i * to_down + j * to_across] = convert<To>(x);
        }
    }
  });
}

template <class From>
void convert_from(const ConstView& from, const View& to) {
  switch (to.dtype) {
    case DType::f32:
      return convert_rows<From, float>(from, to);
    case DType::f64:
      return convert_rows<From, double>(from, to);
    case DType::bf16:
      return convert_rows<From, bf16>(from, to);
    case DType::f16:
      return convert_rows<From, f16>(from, to);
    default:
      throw std::invalid_argument("[convert] expected a floating type; found " + std::string(dtype_name(to.dtype)));
  }
}

// The subview at index i of the first axis.
template <class V>
V place(V view, std::int64_t i) {
  using Byte = std::conditional_t<std::is_same_v<V, View>, std::byte, const std::byte>;
  view.data = static_cast<Byte*>(view.data) + row_bytes(view.dtype, i * view.strides[0]);
  view.shape = Dims(std::span(view.shape.begin() + 1, view.shape.end()));
  view.strides = Dims(std::span(view.strides.begin() + 1, view.strides.end()));
  return view;
}

}  // namespace

Tensor converted(const ConstView& from, DType dtype) {
  if (!is_floating(from.dtype) || !is_floating(dtype))
    throw std::invalid_argument("[convert] expected floating types; found " + std::string(dtype_name(from.dtype)) +
                                " and " + std::string(dtype_name(dtype)));
  Tensor to(from.shape, dtype);
  convert_elements(from, to.view());
  return to;
}

void convert_elements(const ConstView& from, const View& to) {
  if (!(from.shape == to.shape))
    throw std::invalid_argument("[convert] expected equal shapes; found " + to_string(from.shape) + " and " +
                                to_string(to.shape));
  if (element_count(from.shape) == 0) return;
  if (from.rank() > 2) {
    for (std::int64_t i = 0; i < from.shape[0]; ++i) convert_elements(place(from, i), place(to, i));
    return;
  }
  switch (from.dtype) {
    case DType::f32:
      return convert_from<float>(from, to);
    case DType::f64:
      return convert_from<double>(from, to);
    case DType::bf16:
      return convert_from<bf16>(from, to);
    case DType::f16:
      return convert_from<f16>(from, to);
    default:
      throw std::invalid_argument("[convert] expected a floating type; found " + std::string(dtype_name(from.dtype)));
  }
}

}  // namespace qkv
