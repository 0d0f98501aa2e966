// SPDX-License-Identifier: Apache-2.0
// Set up once per tiled pass: kernels, units of the scores, and the memory of a thread.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "kernels/kernels.h"

namespace qkv {

inline constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

// The kernels of a pass and the units of its scores. If only the scale is applied between q . k and the softmax, scores
// stay q . k and the scale is folded into the exponential's factor; scaling the queries would round once more.
// Otherwise scores are scaled and in natural units: lowest float * log2(e) would be -inf.
struct TilePlan {
  // bf16: whether all inputs of products are bf16, so that bf16 kernels may be used.
  TilePlan(const AttentionProblem& problem, bool all_bf16);

  const AttentionProblem& p;
  const KernelTable& table;
  bool bf16;           // products of bf16 pairs
  float score_factor;  // scores are multiplied by it in a separate pass; 1: no pass
  float unit;          // 2^(score * unit) = e^(natural score)
};

inline constexpr int kSplitKeys = 512;  // keys per split of the forward pass
inline constexpr int kNarrowTile = 8;   // the widest tile with few rows, which uses the decode kernels

inline std::int64_t round_up(std::int64_t x, std::int64_t step) noexcept { return (x + step - 1) / step * step; }

// Memory of one call, shared by its threads, reused from earlier calls of the same thread, so that repeated calls
// neither request pages from the system nor clear them. Uninitialized. Throws std::bad_alloc.
class CallMemory {
 public:
  explicit CallMemory(std::int64_t floats);
  ~CallMemory();
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;
  float* data() const noexcept { return data_; }

 private:
  Tensor block_;
  float* data_;
};

// Buffers for copies of one key tile, where the caller's memory layout is unsuitable.
struct KeyBuffers {
  std::int64_t d_k, d_v;             // multiples of 16
  float *k, *v;                      // [kKeyTile][d_k], [kKeyTile][d_v]; null with bf16 products
  std::uint16_t *k16, *v16;          // the same in bf16; these and the pairs are null without bf16 products
  std::uint16_t *k_pairs, *v_pairs;  // [kKeyTile / 2][d_k][2], [kKeyTile / 2][d_v][2]
};

// Memory that will be needed soon, prefetched a few lines at a time between kernels: prefetching it all at once would
// stall on memory.
class Prefetcher {
 public:
  void clear() noexcept { count_ = part_ = 0, row_ = byte_ = 0; }
  // Rows of `bytes` each, `stride` bytes apart. At most four calls after clear().
  void add(const void* first, std::int64_t rows, std::int64_t stride, std::int64_t bytes) noexcept;
  // Prefetches the next lines, if any are left.
  void step() noexcept;

 private:
  struct Part {
    const char* first;
    std::int64_t rows, stride, bytes;
  };
  Part parts_[4];
  int count_ = 0, part_ = 0;
  std::int64_t row_ = 0, byte_ = 0;
};

// Memory of one thread, reused across calls. Row-major; columns are queries of the tile. Members used only for bf16
// products are null otherwise.
struct Scratch {
  // key_tiles: number of further key tiles whose buffers and sums will be taken. Throws std::bad_alloc.
  explicit Scratch(const TilePlan& plan, int key_tiles = 0);
  float* take(std::int64_t floats);  // 64-byte aligned
  std::uint16_t* take16(std::int64_t halves) { return reinterpret_cast<std::uint16_t*>(take((halves + 1) / 2)); }
  KeyBuffers take_key_buffers();

  std::int64_t d_k, d_v;                // multiples of 16
  float *qt, *dot;                      // [d_k][width] queries, [d_v][width] gradients of the output
  float *s, *ds, *slope;                // [kKeyTile][width]
  KeyBuffers keys;                      // of the current tile
  float *bias, *bias_rows;              // [kKeyTile][width], [width][kKeyTile]
  float* rows;                          // [width][max(d_k, d_v)]
  float* split;                         // [kSplitKeys][kNarrowTile]: scores of a narrow tile
  std::uint16_t *qt_pairs, *dot_pairs;  // [d_k / 2][width][2], [d_v / 2][width][2]
  std::uint16_t *p_pairs, *ds_pairs;    // [kKeyTile / 2][width][2]
  std::uint16_t *p_rows, *ds_rows;      // [kKeyTile][width]
  Prefetcher ahead;                     // what to prefetch between kernels

 private:
  bool bf16_;
  std::size_t used_ = 0;
};

}  // namespace qkv
