// SPDX-License-Identifier: Apache-2.0
// Small passes between products: stream to operand and back, sums of rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dropout.h"
#include "kernels/row_kernels.h"
#include "model/gradient_slots.h"
#include "model/sequences.h"
#include "model/workspace.h"

namespace qkv {

// Elements that one task handles.
inline constexpr std::int64_t kElementsAtOnce = 16384;

// x [size] as an operand of products: itself, or rounded into `room`.
template <class T, class S>
const S* as_operand(std::int64_t size, const T* x, Room<S>& room) {
  if constexpr (std::is_same_v<T, S>) {
    return x;
  } else {
    S* y = room.take(size);
    parallel_ranges(size, kElementsAtOnce, [=](std::int64_t begin, std::int64_t end) {
      row_kernels().of<S>().from_f32(end - begin, x + begin, y + begin);
    });
    return y;
  }
}

// y = x * scale where element first + i of the dropout's array is kept, else 0; x, y [size]; y may be x.
template <class T, class S>
void drop_elements(const Dropout& dropout, std::int64_t first, std::int64_t size, const T* x, S* y) {
  parallel_ranges(size, kElementsAtOnce, [=, &dropout](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      const DropoutKey key{dropout.seed, dropout.threshold, static_cast<float>(dropout.scale)};
      row_kernels().of<S>().dropout(key, static_cast<std::uint64_t>(first + begin), end - begin, x + begin, y + begin);
    } else {
      for (std::int64_t i = begin; i < end; ++i)
        y[i] = dropout.keeps(static_cast<std::uint64_t>(first + i)) ? x[i] * dropout.scale : 0;
    }
  });
}

// The same for rows of d elements, x, y [batch, ctx, d]: sequence b is number first_sequence + b of the step and has
// ctx_len rows in the dropout's array, however many the batch has, so that padding moves nothing.
template <class T, class S>
void drop_sequences(const Dropout& dropout, const Sequences& s, std::int64_t first_sequence, std::int64_t ctx_len,
                    std::int64_t d, const T* x, S* y) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    drop_elements(dropout, (first_sequence + b) * ctx_len * d, s.ctx * d, x + b * s.ctx * d, y + b * s.ctx * d);
}

// out = a + b, each [size]; out may be a or b.
template <class T>
void add(std::int64_t size, const T* a, const T* b, T* out) {
  parallel_ranges(size, kElementsAtOnce, [=](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>)
      row_kernels().f32.add(end - begin, a + begin, b + begin, out + begin);
    else
      for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

// forward: y = x W + b        db: sum of dy's rows, a leaf a sequence
// dy [batch, ctx, ld], of which the first `size` columns -> db [size]; nothing is done if slot 0 is null
template <class T, class S>
void bias_backward(const Sequences& s, std::span<const SumStep> steps, std::int64_t size, const S* dy, std::int64_t ld,
                   const SlotPointers<T>& db) {
  if (!db[0]) return;
  add_leaves(steps, db, size, [&](std::int64_t b, std::int64_t first, std::int64_t count, T* leaf) {
    const std::int64_t row = b * s.ctx, rows = s.length(b);
    if constexpr (std::is_same_v<T, float>) {
      row_kernels().of<S>().row_sums(rows, count, dy + row * ld + first, ld, leaf);
    } else {
      for (std::int64_t i = row; i < row + rows; ++i)
        for (std::int64_t j = 0; j < count; ++j) leaf[j] += dy[i * ld + first + j];
    }
  });
}

}  // namespace qkv
