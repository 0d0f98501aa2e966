// SPDX-License-Identifier: Apache-2.0
// Gradients of weight matrices: y = x W gives dW = x^T dy, a leaf a sequence, summed as lane_tree.h says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/large_memory.h"
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

// Rows that begin a multiple of this many bytes apart fall into the same few sets of a core's caches, which costs
// products of their columns a tenth of their speed. A task copies its columns of such an operand first, into rows that
// lie apart.
inline constexpr std::int64_t kCollision = 4096;
inline constexpr std::int64_t kCopiedColumns = 192, kCopiedRows = 1024;  // at most; longer operands in parts
inline constexpr std::int64_t kCopiedStride = kCopiedColumns + 16;

enum class CopiedOperand { none, x, dy };

template <class S, class T>
CopiedOperand copied_operand(const WeightGradient<S, T>& g) {
  if (!std::is_same_v<S, float>) return CopiedOperand::none;
  const auto collide = [](std::int64_t ld) { return ld * static_cast<std::int64_t>(sizeof(S)) % kCollision == 0; };
  const bool x = collide(g.ldx), dy = collide(g.ldy);
  if (x && dy) return g.in > g.out ? CopiedOperand::x : CopiedOperand::dy;  // the one that is read in more pieces
  return x ? CopiedOperand::x : dy ? CopiedOperand::dy : CopiedOperand::none;
}

// A piece of a matrix that one task sums from the first leaf to the last. Sizes depend on the matrix alone.
struct WeightPiece {
  std::size_t matrix;
  std::int64_t row, rows, column, columns;
  CopiedOperand copied;
};
inline constexpr std::int64_t kPieceRows = 384, kPieceColumns = 768;  // at most, where nothing is copied

// Equal pieces, as far as multiples of 64 allow.
inline std::int64_t piece_size(std::int64_t size, std::int64_t most) {
  const std::int64_t pieces = (size + most - 1) / most;
  return std::min(most, ((size + pieces - 1) / pieces + 63) / 64 * 64);
}

inline void cut_into_pieces(std::size_t matrix, std::int64_t in, std::int64_t out, CopiedOperand copied,
                            std::vector<WeightPiece>& pieces) {
  const bool x = copied == CopiedOperand::x, dy = copied == CopiedOperand::dy;
  const std::int64_t rows = piece_size(in, x ? kCopiedColumns : dy ? kPieceColumns : kPieceRows);
  const std::int64_t columns = piece_size(out, dy ? kCopiedColumns : kPieceColumns);
  for (std::int64_t j = 0; j < out; j += columns)
    for (std::int64_t i = 0; i < in; i += rows)
      pieces.push_back({matrix, i, std::min(rows, in - i), j, std::min(columns, out - j), copied});
}

// from [rows, columns] with row stride ld -> `to`, with row stride kCopiedStride
template <class S>
void copy_apart(std::int64_t rows, std::int64_t columns, const S* from, std::int64_t ld, S* to) {
  constexpr std::int64_t kAhead = 8, kLine = 64 / sizeof(S);  // rows that are asked for early; elements of a line
  for (std::int64_t i = 0; i < rows; ++i) {
    if (i + kAhead < rows)
      for (std::int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(from + (i + kAhead) * ld + j);
    std::copy_n(from + i * ld, columns, to + i * kCopiedStride);
  }
}

// to (+)= x^T dy for a piece of one sequence's leaf; x, dy: the first of its `length` rows
template <class S, class T>
void add_piece(std::int64_t length, const WeightGradient<S, T>& g, const WeightPiece& piece, const S* x, const S* dy,
               bool add, T* to, std::int64_t stride) {
  x += piece.row;
  dy += piece.column;
  if (piece.copied == CopiedOperand::none || length == 0)
    return outer_product(piece.rows, piece.columns, length, x, g.ldx, dy, g.ldy, add, to, stride);
  thread_local const std::shared_ptr<void> memory = matrix_memory(kCopiedRows * kCopiedStride * sizeof(S));
  S* copy = static_cast<S*>(memory.get());  // [kCopiedRows, kCopiedStride]
  for (std::int64_t t = 0; t < length; t += kCopiedRows, add = true) {
    const std::int64_t rows = std::min(kCopiedRows, length - t);
    if (piece.copied == CopiedOperand::x) {
      copy_apart(rows, piece.rows, x + t * g.ldx, g.ldx, copy);
      outer_product(piece.rows, piece.columns, rows, copy, kCopiedStride, dy + t * g.ldy, g.ldy, add, to, stride);
    } else {
      copy_apart(rows, piece.columns, dy + t * g.ldy, g.ldy, copy);
      outer_product(piece.rows, piece.columns, rows, x + t * g.ldx, g.ldx, copy, kCopiedStride, add, to, stride);
    }
  }
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
    add_piece(s.length(step.sequence), g, piece, g.x + first * g.ldx, g.dy + first * g.ldy, !step.fresh, to.data,
              to.stride);
  }
}

template <class S, class T>
void add_weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                          std::span<const WeightGradient<S, T>> gradients) {
  std::vector<WeightPiece> pieces;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].dw[0]) cut_into_pieces(i, gradients[i].in, gradients[i].out, copied_operand(gradients[i]), pieces);
  // Large ones first, so that no thread is left with one at the end.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const WeightPiece& a, const WeightPiece& b) { return a.rows * a.columns > b.rows * b.columns; });
  parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const WeightPiece& piece = pieces[static_cast<std::size_t>(i)];
    sum_piece(s, steps, gradients[piece.matrix], piece);
  });
}

}  // namespace qkv
