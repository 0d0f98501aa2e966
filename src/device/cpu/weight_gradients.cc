// SPDX-License-Identifier: Apache-2.0
// Gradients of weight matrices and biases: y = x W + b gives dW = x^T dy and db = sum of dy, one leaf per sequence.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/large_memory.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/tasks.h"
#include "kernels/row_kernels.h"
#include "linalg/weights.h"

namespace qkv {
namespace {

// Rows whose stride is a multiple of this many bytes map to the same few cache sets, which slows products over their
// columns by a tenth. A task first copies its columns of such inputs into rows with another stride.
constexpr std::int64_t kCollision = 4096;
constexpr std::int64_t kCopiedColumns = 192, kCopiedRows = 1024;  // upper limits; longer inputs are copied in parts
constexpr std::int64_t kCopiedStride = kCopiedColumns + 16;
constexpr std::int64_t kPieceRows = 384, kPieceColumns = 768;  // upper limits without a copy

enum class CopiedOperand { none, x, dy };

// Row-major inputs with their row strides.
template <class S>
struct Operands {
  const S* x;
  std::int64_t ldx;
  const S* dy;
  std::int64_t ldy;
  std::int64_t in, out;
  SlotPointers dw;  // [in, out] each

  explicit Operands(const WeightGradient& g)
      : x(data_of<S>(g.x)),
        ldx(g.x.strides[0]),
        dy(data_of<S>(g.dy)),
        ldy(g.dy.strides[0]),
        in(width_of(g.x)),
        out(width_of(g.dy)),
        dw(g.dw) {}
};

template <class S>
CopiedOperand copied_operand(const Operands<S>& g) {
  if (!std::is_same_v<S, float>) return CopiedOperand::none;
  const auto collide = [](std::int64_t ld) { return ld * static_cast<std::int64_t>(sizeof(S)) % kCollision == 0; };
  const bool x = collide(g.ldx), dy = collide(g.ldy);
  if (x && dy) return g.in > g.out ? CopiedOperand::x : CopiedOperand::dy;  // the one that is read in more pieces
  return x ? CopiedOperand::x : dy ? CopiedOperand::dy : CopiedOperand::none;
}

// A piece of a matrix that one task sums over all leaves in order. Sizes depend only on the matrix.
struct Piece {
  std::size_t matrix;
  std::int64_t row, rows, column, columns;
  CopiedOperand copied;
};

// Divides into equal pieces, up to rounding to multiples of 64.
std::int64_t piece_size(std::int64_t size, std::int64_t most) {
  const std::int64_t pieces = (size + most - 1) / most;
  return std::min(most, ((size + pieces - 1) / pieces + 63) / 64 * 64);
}

void cut_into_pieces(std::size_t matrix, std::int64_t in, std::int64_t out, CopiedOperand copied,
                     std::vector<Piece>& pieces) {
  const bool x = copied == CopiedOperand::x, dy = copied == CopiedOperand::dy;
  const std::int64_t rows = piece_size(in, x ? kCopiedColumns : dy ? kPieceColumns : kPieceRows);
  const std::int64_t columns = piece_size(out, dy ? kCopiedColumns : kPieceColumns);
  for (std::int64_t j = 0; j < out; j += columns)
    for (std::int64_t i = 0; i < in; i += rows)
      pieces.push_back({matrix, i, std::min(rows, in - i), j, std::min(columns, out - j), copied});
}

// Copies [rows, columns] with row stride ld to `to`, with row stride kCopiedStride
template <class S>
void copy_apart(std::int64_t rows, std::int64_t columns, const S* from, std::int64_t ld, S* to) {
  constexpr std::int64_t kAhead = 8, kLine = 64 / sizeof(S);  // rows to prefetch ahead; elements per line
  for (std::int64_t i = 0; i < rows; ++i) {
    if (i + kAhead < rows)
      for (std::int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(from + (i + kAhead) * ld + j);
    std::copy_n(from + i * ld, columns, to + i * kCopiedStride);
  }
}

// to (+)= x^T dy for a piece of one sequence's leaf; x, dy point to the first of its `length` rows
template <class S>
void add_piece(std::int64_t length, const Operands<S>& g, const Piece& piece, const S* x, const S* dy, bool add,
               float* to, std::int64_t stride) {
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

template <class S>
void sum_piece(const Sequences& s, std::span<const SumStep> steps, const Operands<S>& g, const Piece& piece) {
  thread_local std::vector<float> own;  // [kSumSlots - 1, kPieceRows, kPieceColumns]
  struct Place {
    float* data;
    std::int64_t stride;
  };
  const auto place = [&](int slot) -> Place {
    if (void* whole = g.dw[static_cast<std::size_t>(slot)])
      return {static_cast<float*>(whole) + piece.row * g.out + piece.column, g.out};
    own.resize(static_cast<std::size_t>((kSumSlots - 1) * kPieceRows * kPieceColumns));
    return {own.data() + (slot - 1) * kPieceRows * kPieceColumns, piece.columns};
  };
  for (const SumStep& step : steps) {
    const Place to = place(step.to);
    if (step.from >= 0) {
      const Place from = place(step.from);
      for (std::int64_t i = 0; i < piece.rows; ++i)
        row_kernels().f32.accumulate(piece.columns, from.data + i * from.stride, to.data + i * to.stride);
      continue;
    }
    const std::int64_t first = step.sequence * s.ctx;
    add_piece(s.length(step.sequence), g, piece, g.x + first * g.ldx, g.dy + first * g.ldy, !step.fresh, to.data,
              to.stride);
  }
}

}  // namespace

void CpuDevice::weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                                 std::span<const WeightGradient> gradients) {
  if (gradients.empty()) return;
  with_operand(gradients[0].x.dtype, [&]<class S>(S) {
    std::vector<Operands<S>> operands;
    std::vector<Piece> pieces;
    for (const WeightGradient& gradient : gradients) {
      const Operands<S>& g = operands.emplace_back(gradient);
      if (g.dw[0]) cut_into_pieces(operands.size() - 1, g.in, g.out, copied_operand(g), pieces);
    }
    // Largest first, so that no thread ends with a large piece.
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.rows * a.columns > b.rows * b.columns; });
    parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      sum_piece(s, steps, operands[piece.matrix], piece);
    });
  });
}

void CpuDevice::bias_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& dy,
                              const SlotPointers& db) {
  if (!db[0]) return;
  const std::int64_t ld = dy.strides[0];
  with_operand(dy.dtype, [&]<class S>(S) {
    add_leaves<float>(
        steps, db, width_of(dy), [&](std::int64_t b, std::int64_t first, std::int64_t count, float* leaf) {
          row_kernels().of<S>().row_sums(s.length(b), count, data_of<S>(dy) + b * s.ctx * ld + first, ld, leaf);
        });
  });
}

}  // namespace qkv
