// SPDX-License-Identifier: Apache-2.0
// Shared by the tiled backward passes: delta and lse of each row, and p and dscores of a query tile and a key tile.
#pragma once

#include <cstdint>

#include "attention/tile_scores.h"

namespace qkv {

// For every row: lse in the units of the scores (+inf for a fully masked row, so that its probabilities are 0), and
// delta = sum over c of dout[c] * out[c].
class RowStatistics {
 public:
  RowStatistics(const TilePlan& plan, const ConstView& out, const ConstView& lse, const ConstView& dout);
  float lse(std::int64_t b, std::int64_t h, std::int64_t i) const noexcept { return lse_[at(b, h, i)]; }
  float delta(std::int64_t b, std::int64_t h, std::int64_t i) const noexcept { return delta_[at(b, h, i)]; }

 private:
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t i) const noexcept {
    return (b * n_head_ + h) * q_len_ + i;
  }
  std::int64_t n_head_, q_len_;
  CallMemory memory_;
  float *lse_, *delta_;  // [batch, n_head, q_len]
};

// The rows of q and dout of a query tile in both layouts: scratch.qt and dot (or their pairs) for the products over d_k
// and d_v, and here rows for the sums over queries. Non-finite elements are 0 in the rows and recorded in the lists.
struct GradientRows {
  GradientRows(const TilePlan& plan, Scratch& scratch);
  void load(const QueryTile& tile, const RowStatistics& statistics, const ConstView& dout_view);
  bool finite() const noexcept { return q_non_finites.empty() && dout_non_finites.empty(); }

  const float *q = nullptr, *dout = nullptr;                // f32: [width][ld], zeros up to whole vectors; not scaled
  std::uint16_t *q_pairs = nullptr, *dout_pairs = nullptr;  // bf16: [width / 2][ld][2]
  std::int64_t ld_q = 0, ld_dout = 0;
  float lse[kMaxWidth], delta[kMaxWidth];
  bool rescaled = false;  // p = 2^((score - lse) unit) * factor: lse is the maximum, since f32 cannot hold a large lse
  float factor[kMaxWidth];
  NonFinites q_non_finites, dout_non_finites;  // row: index in the tile

 private:
  void load_f32(const QueryTile& tile, const ConstView& dout_view);
  void load_bf16(const QueryTile& tile, const ConstView& dout_view);
  void rescale(const QueryTile& tile, const bool* large);

  const TilePlan& plan_;
  Scratch& scratch_;
  float *q_copy_, *dout_copy_;
};

struct TileGradients {
  TileScores scores;
  bool careful = false;  // something is non-finite: use the bits of the unmasked pairs
};

// scratch.s = p (after dropout) and scratch.ds = gradient of the masked scores in the segments, which is also that of
// the mask. bits, used where `careful`: for each key, one bit per row that may attend to it.
TileGradients compute_gradients(const TilePlan& plan, const QueryTile& tile, const KeyTile& keys,
                                const GradientRows& rows, Scratch& scratch, std::uint64_t* bits) noexcept;
// Then scratch.ds = gradient of the scores before softcap and scale, and with bf16 products p and ds rounded in p_rows,
// ds_rows and ds_pairs.
void finish_gradients(const TilePlan& plan, const QueryTile& tile, const TileScores& scores, Scratch& scratch) noexcept;

// dsinks [n_head] = - sum over rows of exp(sink - lse) * delta.
void sink_gradient(const TilePlan& plan, const RowStatistics& statistics, const View& dsinks);

}  // namespace qkv
