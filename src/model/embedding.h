// SPDX-License-Identifier: Apache-2.0
// x = token_embedding[token] + position_embedding[position], forward and backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/gradient_slots.h"
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

// dx [batch, ctx, d] -> tables [vocab_size, d], a leaf a sequence. Past slot 0, rows of the token table that no token
// of the partial sum has are 0, and `touched` lists the others.
template <class T>
void token_table_backward(const Sequences& s, std::int64_t d, std::int64_t vocab_size,
                          std::span<const std::int32_t> tokens, const T* dx, const SlotPointers<T>& tables,
                          const GradientSlots<T>& g) {
  constexpr std::int64_t kColumns = 64;
  const auto tokens_of = [&](std::int64_t b) {
    return tokens.subspan(static_cast<std::size_t>(b * s.ctx), static_cast<std::size_t>(s.length(b)));
  };
  // What each step finds in the slots' lists, so that the columns' tasks can go on alone.
  std::vector<std::vector<std::int32_t>> moved;  // [steps]: the rows that a step moves from one slot to another
  for (const SumStep& step : g.steps) {
    std::vector<std::int32_t>& to = *g.touched[static_cast<std::size_t>(step.to)];
    std::vector<std::int32_t>& rows = moved.emplace_back();
    if (step.from >= 0) {
      rows.swap(*g.touched[static_cast<std::size_t>(step.from)]);
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    }
    if (step.to == 0) continue;
    const auto more = step.from >= 0 ? std::span<const std::int32_t>(rows) : tokens_of(step.sequence);
    to.insert(to.end(), more.begin(), more.end());
  }
  parallel_ranges(d, kColumns, [&](std::int64_t first, std::int64_t last) {
    for (std::size_t i = 0; i < g.steps.size(); ++i) {
      const SumStep& step = g.steps[i];
      T* to = tables[static_cast<std::size_t>(step.to)];  // [vocab_size, d]
      if (step.from >= 0) {
        T* from = tables[static_cast<std::size_t>(step.from)];  // [vocab_size, d]
        for (const std::int32_t row : moved[i])
          for (std::int64_t j = row * d + first; j < row * d + last; ++j) {
            to[j] += from[j];
            from[j] = T{0};
          }
        continue;
      }
      if (step.fresh && step.to == 0)
        for (std::int64_t row = 0; row < vocab_size; ++row) std::fill(to + row * d + first, to + row * d + last, T{0});
      const auto ids = tokens_of(step.sequence);
      const T* dxi = dx + step.sequence * s.ctx * d;  // [ctx, d]
      for (std::size_t t = 0; t < ids.size(); ++t, dxi += d)
        for (std::int64_t j = first; j < last; ++j) to[ids[t] * d + j] += dxi[j];
    }
  });
}

// forward: x[b, t] = token_table[token] + position_table[t]
// dx [batch, ctx, d] -> dtoken_table [vocab_size, d], dposition_table [ctx_len, d], each unless it is null in slot 0
template <class T>
void embedding_backward(const Sequences& s, std::int64_t d, std::int64_t vocab_size, std::int64_t ctx_len,
                        std::span<const std::int32_t> tokens, const T* dx, const GradientSlots<T>& g) {
  const SlotPointers<T> tables = g.of([](auto& role) { return role.token_embedding; });
  if (tables[0]) token_table_backward(s, d, vocab_size, tokens, dx, tables, g);
  const SlotPointers<T> positions = g.of([](auto& role) { return role.position_embedding; });
  if (!positions[0]) return;
  add_leaves(g.steps, positions, ctx_len * d, [&](std::int64_t b, std::int64_t first, std::int64_t count, T* leaf) {
    const T* row = dx + b * s.ctx * d;  // [ctx, d]
    for (std::int64_t j = 0; j < count && first + j < s.length(b) * d; ++j) leaf[j] = row[first + j];
  });
}

}  // namespace qkv
