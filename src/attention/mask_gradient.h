// SPDX-License-Identifier: Apache-2.0
// d(mask) = dscores, summed over the axes along which the mask was broadcast. The backward pass adds its dscores as it
// computes them. The order of each sum is: splits, sequences, heads, queries (those that are summed); a task waits
// until earlier tasks have added, so the bits never depend on the number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/tile_scores.h"
#include "attention/turns.h"

namespace qkv {

// The gradient of one call, shared by its tasks.
class MaskGradient {
 public:
  // dmask [1 or batch, 1 or n_head, 1 or q_len, 1 or kv_len]; leading axes may be missing.
  MaskGradient(const TilePlan& plan, const RowTiling& tiling, std::int64_t splits, const View& dmask);
  void store() const;  // after all tasks
  void fail() noexcept { turns_->fail(); }

 private:
  friend class MaskGradientTask;
  struct Axis {
    std::int64_t size = 1, full = 0;
    bool summed() const noexcept { return size == 1; }
  };
  enum : std::uint8_t { kBatch, kHead, kQuery, kKey };

  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const noexcept {
    return (axes_[kBatch].summed() ? 0 : b) * strides_[kBatch] + (axes_[kHead].summed() ? 0 : h) * strides_[kHead] +
           (axes_[kQuery].summed() ? 0 : i) * strides_[kQuery] + (axes_[kKey].summed() ? 0 : j) * strides_[kKey];
  }

  const AttentionProblem& p_;
  const View& dmask_;
  std::int64_t query_tiles_, splits_;
  Axis axes_[4];
  Dims given_{0, 0, 0, 0};    // strides of dmask, 0 along summed axes
  Dims strides_{0, 0, 0, 0};  // of the sums
  // Sums are f32 if neither queries nor keys are summed, in dmask itself if it can hold them; otherwise f64.
  float* single_ = nullptr;
  std::optional<CallMemory> memory_;
  std::vector<double> double_;
  std::optional<Turns> turns_;
};

// The contribution of one task (a split of the keys of one key head). For each query tile in order: start, add for each
// key tile, finish; at the end store.
class MaskGradientTask {
 public:
  MaskGradientTask(MaskGradient& sums, std::int64_t b, std::int64_t kv_head, std::int64_t split, std::int64_t begin,
                   std::int64_t end);
  void start(const QueryTile& tile);  // also for tiles without rows
  // Adds scratch.ds of the segments, which begin at key j0; uses scratch.bias and bias_rows.
  void add(const QueryTile& tile, const TileScores& scores, std::int64_t j0, Scratch& scratch);
  void finish(const QueryTile& tile) noexcept;
  void store();

 private:
  void add_elements(const QueryTile& tile, const Segment& g, std::int64_t j0, Scratch& scratch) noexcept;
  void add_keys(const QueryTile& tile, const Segment& g, std::int64_t j0, Scratch& scratch) noexcept;
  void add_rows(const QueryTile& tile, const Segment& g, const Scratch& scratch) noexcept;
  std::int64_t sum_of(std::int64_t h, std::int64_t query_tile) const noexcept;
  std::int64_t turn_of(std::int64_t h) const noexcept;

  MaskGradient& sums_;
  std::int64_t b_, kv_head_, split_, begin_, end_;
  std::vector<double> keys_;  // [heads of the key head, or 1][end - begin, or 1]: sums over queries
};

}  // namespace qkv
