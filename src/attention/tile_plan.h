// SPDX-License-Identifier: Apache-2.0
// What a tiled pass settles once: kernels, the units of its scores, and the memory of a thread.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "kernels/kernels.h"

namespace qkv {

inline constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

// Which kernels a pass uses and what its scores are measured in. Where nothing but the scale stands between q . k and
// the softmax, scores stay q . k and the scale is part of the exponential's factor; scaled queries would be rounded
// once more. Elsewhere scores are scaled, natural numbers: lowest float * log2(e) would be -inf.
struct TilePlan {
  // bf16: whether everything multiplied is bf16, so that kernels for its products may be used.
  TilePlan(const AttentionProblem& problem, bool all_bf16);

  const AttentionProblem& p;
  const KernelTable& table;
  bool bf16;           // products of bf16 pairs
  float score_factor;  // scores are multiplied by it in a pass of its own; 1: no pass
  float unit;          // 2^(score * unit) = e^(natural score)
};

inline constexpr int kSplitKeys = 512;  // keys of a split of the forward pass
inline constexpr int kNarrowTile = 8;   // the widest tile of few rows, whose kernels are those of decoding

inline std::int64_t round_up(std::int64_t x, std::int64_t step) noexcept { return (x + step - 1) / step * step; }

// Memory of one call, shared by its threads: taken from what earlier calls of the same thread gave back, so that a call
// like the last one neither asks the system for pages nor clears them. Not cleared. Throws std::bad_alloc.
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

// Room for the copies of one key tile, where the caller's memory does not serve.
struct KeyBuffers {
  std::int64_t d_k, d_v;             // multiples of 16
  float *k, *v;                      // [kKeyTile][d_k], [kKeyTile][d_v]; null with bf16 products
  std::uint16_t *k16, *v16;          // the same in bf16; null without bf16 products, as are the pairs
  std::uint16_t *k_pairs, *v_pairs;  // [kKeyTile / 2][d_k][2], [kKeyTile / 2][d_v][2]
};

// Memory that will be needed soon, prefetched a few lines at a time between the kernels: all at once would keep the
// processor waiting for memory, which is what prefetching is to avoid.
class Prefetcher {
 public:
  void clear() noexcept { count_ = part_ = 0, row_ = byte_ = 0; }
  // Rows of `bytes` each, `stride` bytes apart. At most four times after clear().
  void add(const void* first, std::int64_t rows, std::int64_t stride, std::int64_t bytes) noexcept;
  // The next lines of memory, if any are left.
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

// Memory of one thread, kept between calls. Row-major; columns are queries of the tile. What only bf16 products use is
// null elsewhere.
struct Scratch {
  // key_tiles: of how many more key tiles buffers and sums will be taken. Throws std::bad_alloc.
  explicit Scratch(const TilePlan& plan, int key_tiles = 0);
  float* take(std::int64_t floats);  // 64-byte aligned
  std::uint16_t* take16(std::int64_t halves) { return reinterpret_cast<std::uint16_t*>(take((halves + 1) / 2)); }
  KeyBuffers take_key_buffers();

  std::int64_t d_k, d_v;                // multiples of 16
  float *qt, *dot;                      // [d_k][width] queries, [d_v][width] gradients of the output
  float *s, *ds, *slope;                // [kKeyTile][width]
  KeyBuffers keys;                      // of the tile at work
  float *bias, *bias_rows;              // [kKeyTile][width], [width][kKeyTile]
  float* rows;                          // [width][max(d_k, d_v)]
  float* split;                         // [kSplitKeys][kNarrowTile]: scores of a tile of few rows
  std::uint16_t *qt_pairs, *dot_pairs;  // [d_k / 2][width][2], [d_v / 2][width][2]
  std::uint16_t *p_pairs, *ds_pairs;    // [kKeyTile / 2][width][2]
  std::uint16_t *p_rows, *ds_rows;      // [kKeyTile][width]
  Prefetcher ahead;                     // what to prefetch between kernels

 private:
  bool bf16_;
  std::size_t used_ = 0;
};

}  // namespace qkv
