// SPDX-License-Identifier: Apache-2.0
#include "formats/elements.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace qkv {
namespace {

// Calls visit(first element, count, step in bytes) for every innermost row, in row-major order.
template <class Visit>
void for_each_row(const ConstView& from, Visit visit) {
  if (element_count(from.shape) == 0) return;
  const auto size = static_cast<std::int64_t>(dtype_size(from.dtype));
  const auto* base = static_cast<const std::byte*>(from.data);
  const int outer = std::max(from.rank() - 1, 0);
  const std::int64_t row = from.rank() ? from.shape[outer] : 1, step = from.rank() ? from.strides[outer] * size : size;
  Dims at = from.shape;  // index of the row
  for (int axis = 0; axis < outer; ++axis) at[axis] = 0;
  std::int64_t offset = 0;
  for (;;) {
    visit(base + offset, row, step);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      offset += from.strides[axis] * size;
      if (++at[axis] < from.shape[axis]) break;
      offset -= from.strides[axis] * size * from.shape[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <std::size_t kSize>
void gather(const std::byte* from, std::int64_t count, std::int64_t step, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * static_cast<std::int64_t>(kSize), from + i * step, kSize);
}

void gather(const std::byte* from, std::int64_t count, std::int64_t step, std::size_t size, std::byte* to) {
  if (step == static_cast<std::int64_t>(size))
    std::memcpy(to, from, static_cast<std::size_t>(count) * size);
  else if (size == 1)
    gather<1>(from, count, step, to);
  else if (size == 2)
    gather<2>(from, count, step, to);
  else if (size == 4)
    gather<4>(from, count, step, to);
  else
    gather<8>(from, count, step, to);
}

bool is_contiguous(const ConstView& view) {
  const Dims wanted = contiguous_strides(view.shape);
  for (int axis = 0; axis < view.rank(); ++axis)
    if (view.shape[axis] != 1 && view.strides[axis] != wanted[axis]) return false;
  return true;
}

}  // namespace

void copy_elements(const ConstView& from, void* to) {
  const std::size_t size = dtype_size(from.dtype);
  auto* out = static_cast<std::byte*>(to);
  for_each_row(from, [&](const std::byte* row, std::int64_t count, std::int64_t step) {
    gather(row, count, step, size, out);
    out += count * static_cast<std::int64_t>(size);
  });
}

void write_elements(AtomicFile& file, const ConstView& from, bool widen_bf16) {
  const std::size_t size = dtype_size(from.dtype);
  const bool widen = widen_bf16 && from.dtype == DType::bf16;
  if (!widen && is_contiguous(from)) {
    file.write(from.data, static_cast<std::size_t>(element_count(from.shape)) * size);
    return;
  }
  constexpr std::int64_t kChunk = 4096;  // elements
  std::vector<std::byte> chunk(kChunk * 8);
  std::vector<float> wide(widen ? kChunk : 0);
  for_each_row(from, [&](const std::byte* row, std::int64_t count, std::int64_t step) {
    for (std::int64_t i = 0; i < count; i += kChunk) {
      const std::int64_t n = std::min(kChunk, count - i);
      gather(row + i * step, n, step, size, chunk.data());
      if (widen) {
        for (std::int64_t k = 0; k < n; ++k) {
          bf16 x;
          std::memcpy(&x, chunk.data() + 2 * k, sizeof x);
          wide[static_cast<std::size_t>(k)] = to_f32(x);
        }
        file.write(wide.data(), static_cast<std::size_t>(n) * sizeof(float));
      } else {
        file.write(chunk.data(), static_cast<std::size_t>(n) * size);
      }
    }
  });
}

}  // namespace qkv
