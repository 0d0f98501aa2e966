// SPDX-License-Identifier: Apache-2.0
// x = token_embedding[token] + position_embedding[position], forward and backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "model/sequences.h"

namespace qkv {

// tokens [batch, ctx] (padding is not looked at), token_table [vocab_size, d], position_table [ctx_len, d] or null;
// token t of a sequence stands at position first_position + t -> x [batch, ctx, d]; padding rows are 0.
template <class T>
void embedding_forward(const Sequences& s, std::int64_t d, std::span<const std::int32_t> tokens,
                       std::int64_t first_position, const T* token_table, const T* position_table, T* x) {
  parallel_ranges(s.rows(), rows_per_task(d), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / s.ctx, t = i % s.ctx;
      T* xi = x + i * d;  // [d]
      if (t >= s.length(b)) {
        std::fill_n(xi, d, T{0});
        continue;
      }
      const T* token = token_table + std::int64_t{tokens[static_cast<std::size_t>(i)]} * d;  // [d]
      std::copy_n(token, d, xi);
      if (!position_table) continue;
      const T* position = position_table + (first_position + t) * d;  // [d]
      for (std::int64_t j = 0; j < d; ++j) xi[j] += position[j];
    }
  });
}

// forward: x[b, t] = token_table[token] + position_table[t]
// dx [batch, ctx, d] -> dtoken_table [vocab_size, d] += , dposition_table [ctx_len, d] or null +=, rows in order
template <class T>
void embedding_backward(const Sequences& s, std::int64_t d, std::span<const std::int32_t> tokens, const T* dx,
                        T* dtoken_table, T* dposition_table) {
  constexpr std::int64_t kColumns = 64;
  parallel_ranges(d, kColumns, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0; t < s.length(b); ++t) {
        const std::int64_t i = b * s.ctx + t;
        const T* dxi = dx + i * d;                                                         // [d]
        T* dtoken = dtoken_table + std::int64_t{tokens[static_cast<std::size_t>(i)]} * d;  // [d]
        for (std::int64_t j = first; j < last; ++j) dtoken[j] += dxi[j];
        if (!dposition_table) continue;
        T* dposition = dposition_table + t * d;  // [d]
        for (std::int64_t j = first; j < last; ++j) dposition[j] += dxi[j];
      }
  });
}

}  // namespace qkv
