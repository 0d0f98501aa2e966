// SPDX-License-Identifier: Apache-2.0
// d(mask) = dscores, summed over the axes along which the mask was broadcast: a pass of its own over (query tile, key
// tile), with batch and heads summed in order inside.
#include <algorithm>
#include <memory>
#include <vector>

#include "attention/tile_elements.h"
#include "attention/tile_gradients.h"
#include "core/parallel.h"

namespace qkv {
namespace {

// One axis of the mask: its size, 1 where it was broadcast, and the run of problem indices that element `i` stands for.
struct Axis {
  std::int64_t size = 1, stride = 0, full = 0;
  bool summed() const noexcept { return size == 1; }
  std::int64_t begin(std::int64_t i) const noexcept { return summed() ? 0 : i; }
  std::int64_t end(std::int64_t i) const noexcept { return summed() ? full : i + 1; }
};

class MaskGradient {
 public:
  MaskGradient(const TilePlan& plan, const RowStatistics& statistics, const ConstView& dout, const View& dmask)
      : plan_(plan), p_(plan.p), statistics_(statistics), dout_(dout), dmask_(dmask), tiling_(plan, 1) {
    const std::int64_t full[4] = {p_.batch, p_.n_head, p_.q_len, p_.kv_len};
    for (int i = 0; i < 4; ++i) axes_[i].full = full[i];
    for (int i = 0; i < dmask.rank(); ++i) {
      Axis& axis = axes_[4 - dmask.rank() + i];
      axis.size = dmask.shape[i];
      axis.stride = axis.summed() ? 0 : dmask.strides[i];
    }
    const KeySteps steps{0, p_.kv_len, p_.first_key, kKeyTile};
    while (key_cuts_.back() < p_.kv_len) key_cuts_.push_back(steps.next(key_cuts_.back()));
    query_tiles_ = {axes_[2].summed() ? 1 : tiling_.query_tiles(), 0, tiling_.query_tiles()};
    key_tiles_ = {axes_[3].summed() ? 1 : static_cast<std::int64_t>(key_cuts_.size()) - 1, 0,
                  static_cast<std::int64_t>(key_cuts_.size()) - 1};
  }

  // A task is one tile of the mask; what was broadcast is summed inside it, in order.
  void run() const {
    parallel_for(axes_[0].size * axes_[1].size * query_tiles_.size * key_tiles_.size, [&](std::int64_t task) {
      const std::int64_t k = task % key_tiles_.size, q = task / key_tiles_.size % query_tiles_.size;
      const std::int64_t bh = task / key_tiles_.size / query_tiles_.size;
      run_tile(bh / axes_[1].size, bh % axes_[1].size, q, k);
    });
  }

 private:
  // [key][query] of a tile; an axis that is summed has one entry.
  struct Sums {
    double values[kKeyTile][kMaxWidth] = {};
  };

  void run_tile(std::int64_t mask_b, std::int64_t mask_h, std::int64_t mask_q, std::int64_t mask_k) const {
    Scratch scratch(plan_);
    GradientRows rows(plan_, scratch);
    const auto sums = std::make_unique<Sums>();
    for (std::int64_t b = axes_[0].begin(mask_b); b < axes_[0].end(mask_b); ++b)
      for (std::int64_t h = axes_[1].begin(mask_h); h < axes_[1].end(mask_h); ++h)
        for (std::int64_t q = query_tiles_.begin(mask_q); q < query_tiles_.end(mask_q); ++q) {
          const QueryTile tile = tiling_.tile(b, h / p_.group, h % p_.group * tiling_.query_tiles() + q);
          if (tile.rows == 0) continue;
          rows.load(tile, statistics_, dout_);
          for (std::int64_t k = key_tiles_.begin(mask_k); k < key_tiles_.end(mask_k); ++k)
            add_pair(tile, rows, k, scratch, *sums);
        }
    store(mask_b, mask_h, mask_q, mask_k, *sums);
  }

  void add_pair(const QueryTile& tile, const GradientRows& rows, std::int64_t k, Scratch& scratch, Sums& sums) const {
    const std::int64_t cut = key_cut(k);
    const std::int64_t j0 = std::max(cut, tile.any_begin), j1 = std::min(key_cut(k + 1), tile.any_end);
    if (j0 >= j1) return;
    const KeyTile keys = load_keys(plan_, tile.b, tile.kv_head, j0, j1, KeyUse::backward, scratch.keys);
    std::uint64_t bits[kKeyTile];
    const TileGradients g = compute_gradients(plan_, tile, keys, rows, GradientOf::masked_scores, scratch, bits);
    const int width = tile.kernels->width, lanes = tile.kernels->lanes;
    for (int i = 0; i < g.scores.segments; ++i) {
      const Segment& part = g.scores.segment[i];
      for (int key = part.k0; key < part.k1; ++key) {
        double* to = sums.values[axes_[3].summed() ? 0 : j0 - cut + key];
        for (int c = part.first * lanes; c < std::min(tile.rows, part.last * lanes); ++c)
          to[axes_[2].summed() ? 0 : c] += static_cast<double>(scratch.ds[key * width + c]);
      }
    }
  }

  void store(std::int64_t mask_b, std::int64_t mask_h, std::int64_t mask_q, std::int64_t mask_k,
             const Sums& sums) const {
    const std::int64_t base = mask_b * axes_[0].stride + mask_h * axes_[1].stride;
    const std::int64_t i0 = axes_[2].summed() ? 0 : mask_q * tiling_.queries(),
                       j0 = axes_[3].summed() ? 0 : key_cut(mask_k);
    const std::int64_t i1 = std::min(axes_[2].size, i0 + tiling_.queries());
    const std::int64_t j1 = axes_[3].summed() ? 1 : key_cut(mask_k + 1);
    for (std::int64_t i = i0; i < i1; ++i)
      for (std::int64_t j = j0; j < j1; ++j) {
        const auto value = static_cast<float>(sums.values[j - j0][i - i0]);
        narrow_elements(dmask_.dtype, dmask_.data, base + i * axes_[2].stride + j * axes_[3].stride, 1, 1, &value);
      }
  }

  std::int64_t key_cut(std::int64_t k) const noexcept { return key_cuts_[static_cast<std::size_t>(k)]; }

  const TilePlan& plan_;
  const AttentionProblem& p_;
  const RowStatistics& statistics_;
  const ConstView& dout_;
  const View& dmask_;
  const RowTiling tiling_;                 // tiles of one head
  Axis axes_[4];                           // batch, head, query, key
  std::vector<std::int64_t> key_cuts_{0};  // where key tiles begin, and kv_len
  Axis query_tiles_, key_tiles_;
};

}  // namespace

void tiled_mask_gradient(const TilePlan& plan, const RowStatistics& statistics, const ConstView& dout,
                         const View& dmask) {
  MaskGradient(plan, statistics, dout, dmask).run();
}

}  // namespace qkv
