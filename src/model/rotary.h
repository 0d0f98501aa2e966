// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al., "RoFormer", 2021): pair (i, i + head_dim / 2) of a head is turned by the angle
// position * theta^(-2 i / head_dim), or position times a frequency of its own. The pairing is GPT-NeoX's and LLaMA's
// in Hugging Face's layout.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/row_kernels.h"
#include "model/sequences.h"

namespace qkv {

// The angles' cosines and sines for the positions asked for so far.
template <class T>
struct RotaryTable {
  std::int64_t head_dim = 0;
  double theta = 0;
  std::vector<T> cosines, sines;         // [positions, head_dim / 2]
  std::vector<double> frequencies = {};  // [head_dim / 2]; empty: theta^(-2 i / head_dim)

  void reach(std::int64_t positions) {
    const std::int64_t half = head_dim / 2;
    for (std::int64_t p = static_cast<std::int64_t>(cosines.size()) / half; p < positions; ++p)
      for (std::int64_t i = 0; i < half; ++i) {
        const double frequency = frequencies.empty()
                                     ? std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim))
                                     : frequencies[static_cast<std::size_t>(i)];
        const double angle = static_cast<double>(p) * frequency;
        cosines.push_back(static_cast<T>(std::cos(angle)));
        sines.push_back(static_cast<T>(std::sin(angle)));
      }
  }
};

// x [batch, ctx, ld], of which the first heads * head_dim of each token are turned in place; token t stands at
// first_position + t, which table must reach.
//   forward    y_low = x_low cos - x_high sin,   y_high = x_high cos + x_low sin
//   backward   the same with -sin: the gradient is turned back (`back`)
template <class T, class S>
void rotary(const Sequences& s, std::int64_t heads, std::int64_t ld, const RotaryTable<T>& table,
            std::int64_t first_position, bool back, S* x) {
  const std::int64_t d = table.head_dim, half = d / 2;
  parallel_ranges(s.rows(), rows_per_task(heads * d), [&, x](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t position = first_position + i % s.ctx;
      const T* cosine = table.cosines.data() + position * half;  // [half]
      const T* sine = table.sines.data() + position * half;      // [half]
      if constexpr (std::is_same_v<T, float>) {
        row_kernels().of<S>().rotary(1, heads, d, cosine, sine, back, x + i * ld, ld);
      } else {
        for (std::int64_t h = 0; h < heads; ++h) {
          S* low = x + i * ld + h * d;  // [half]
          S* high = low + half;         // [half]
          for (std::int64_t j = 0; j < half; ++j) {
            const S a = low[j], b = high[j], sn = back ? -sine[j] : sine[j];
            low[j] = a * cosine[j] - b * sn;
            high[j] = b * cosine[j] + a * sn;
          }
        }
      }
    }
  });
}

}  // namespace qkv
