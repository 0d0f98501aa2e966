// SPDX-License-Identifier: Apache-2.0
// Gradients of weight matrices: y = x W gives dW = x^T dy, a leaf a sequence, summed as lane_tree.h says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "linalg/weights.h"
#include "model/gradient_slots.h"
#include "model/sequences.h"

namespace qkv {

// x [rows, in] with row stride ldx and dy [rows, out] with row stride ldy, of the pass's sequences.
template <class S, class T>
struct WeightGradient {
  std::int64_t in, out;
  const S* x;
  std::int64_t ldx;
  const S* dy;
  std::int64_t ldy;
  SlotPointers<T> dw;  // [in, out] in each slot; null past slot 0: in the task's own memory; null in 0: not wanted
};

// A piece of a matrix that one task sums from the first leaf to the last. Sizes depend on the matrix alone.
struct WeightPiece {
  std::size_t matrix;
  std::int64_t row, rows, column, columns;
};
inline constexpr std::int64_t kPieceRows = 384, kPieceColumns = 768;  // at most

// Equal pieces, as far as multiples of 64 allow.
inline std::int64_t piece_size(std::int64_t size, std::int64_t most) {
  const std::int64_t pieces = (size + most - 1) / most;
  return std::min(most, ((size + pieces - 1) / pieces + 63) / 64 * 64);
}

inline void cut_into_pieces(std::size_t matrix, std::int64_t in, std::int64_t out, std::vector<WeightPiece>& pieces) {
  const std::int64_t rows = piece_size(in, kPieceRows), columns = piece_size(out, kPieceColumns);
  for (std::int64_t j = 0; j < out; j += columns)
    for (std::int64_t i = 0; i < in; i += rows)
      pieces.push_back({matrix, i, std::min(rows, in - i), j, std::min(columns, out - j)});
}

template <class S, class T>
void sum_piece(const Sequences& s, std::span<const SumStep> steps, const WeightGradient<S, T>& g,
               const WeightPiece& piece) {
  thread_local std::vector<T> own;  // [kSumSlots - 1, kPieceRows, kPieceColumns]
  struct Place {
    T* data;
    std::int64_t stride;
  };
  const auto place = [&](int slot) -> Place {
    if (T* whole = g.dw[static_cast<std::size_t>(slot)]) return {whole + piece.row * g.out + piece.column, g.out};
    own.resize(static_cast<std::size_t>((kSumSlots - 1) * kPieceRows * kPieceColumns));
    return {own.data() + (slot - 1) * kPieceRows * kPieceColumns, piece.columns};
  };
  for (const SumStep& step : steps) {
    const Place to = place(step.to);
    if (step.from >= 0) {
      const Place from = place(step.from);
      for (std::int64_t i = 0; i < piece.rows; ++i)
        accumulate(piece.columns, from.data + i * from.stride, to.data + i * to.stride);
      continue;
    }
    const std::int64_t first = step.sequence * s.ctx;
    outer_product(piece.rows, piece.columns, s.length(step.sequence), g.x + first * g.ldx + piece.row, g.ldx,
                  g.dy + first * g.ldy + piece.column, g.ldy, !step.fresh, to.data, to.stride);
  }
}

template <class S, class T>
void add_weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                          std::span<const WeightGradient<S, T>> gradients) {
  std::vector<WeightPiece> pieces;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].dw[0]) cut_into_pieces(i, gradients[i].in, gradients[i].out, pieces);
  // Large ones first, so that no thread is left with one at the end.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const WeightPiece& a, const WeightPiece& b) { return a.rows * a.columns > b.rows * b.columns; });
  parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const WeightPiece& piece = pieces[static_cast<std::size_t>(i)];
    sum_piece(s, steps, gradients[piece.matrix], piece);
  });
}

}  // namespace qkv
