// SPDX-License-Identifier: Apache-2.0
// d(mask) = dscores, summed over the axes along which the mask was broadcast: a pass of its own over (query tile, key
// tile), with batch and heads summed in order inside.
#include <algorithm>
#include <vector>

#include "attention/tile_elements.h"
#include "attention/tile_gradients.h"
#include "core/parallel.h"

namespace qkv {
namespace {

// The axes of the mask itself: 1 where it was broadcast.
struct Axes {
  std::int64_t size[4], stride[4];
};

Axes axes_of(const View& dmask) noexcept {
  Axes a{{1, 1, 1, 1}, {0, 0, 0, 0}};
  for (int i = 0; i < dmask.rank(); ++i) {
    const int axis = 4 - dmask.rank() + i;
    a.size[axis] = dmask.shape[i];
    a.stride[axis] = dmask.shape[i] == 1 ? 0 : dmask.strides[i];
  }
  return a;
}

}  // namespace

void tiled_mask_gradient(const TilePlan& plan, const RowStatistics& statistics, const ConstView& dout,
                         const View& dmask) {
  const AttentionProblem& p = plan.p;
  const RowTiling tiling(plan, 1);
  const Axes axes = axes_of(dmask);
  const bool all_queries = axes.size[2] == 1 && p.q_len != 1, all_keys = axes.size[3] == 1 && p.kv_len != 1;
  std::vector<std::int64_t> key_cuts{0};
  const KeySteps steps{0, p.kv_len, p.first_key, kKeyTile};
  while (key_cuts.back() < p.kv_len) key_cuts.push_back(steps.next(key_cuts.back()));
  const auto key_tiles = static_cast<std::int64_t>(key_cuts.size()) - 1;
  const std::int64_t query_tasks = all_queries ? 1 : tiling.query_tiles(), key_tasks = all_keys ? 1 : key_tiles;
  if (axes.size[0] * axes.size[1] * axes.size[2] * axes.size[3] == 0) return;

  // sums[key][query] of one output tile; where an axis is summed, its tiles are added into the same place in order.
  const auto run = [&](std::int64_t task) {
    const std::int64_t kt = task % key_tasks, qt = task / key_tasks % query_tasks;
    const std::int64_t ob = task / key_tasks / query_tasks / axes.size[1],
                       oh = task / key_tasks / query_tasks % axes.size[1];
    Scratch scratch(plan);
    GradientRows rows(plan, scratch);
    std::vector<float> sums(kKeyTile * kMaxWidth);
    double total = 0;  // where both axes are summed
    std::vector<double> by_key(kKeyTile), by_query(kMaxWidth);
    std::uint64_t bits[kKeyTile];
    std::int64_t first_query = 0, queries = 0;
    for (std::int64_t b = axes.size[0] == 1 ? 0 : ob; b < (axes.size[0] == 1 ? p.batch : ob + 1); ++b)
      for (std::int64_t h = axes.size[1] == 1 ? 0 : oh; h < (axes.size[1] == 1 ? p.n_head : oh + 1); ++h)
        for (std::int64_t q = all_queries ? 0 : qt; q < (all_queries ? tiling.query_tiles() : qt + 1); ++q) {
          const QueryTile tile = tiling.tile(b, h / p.group, h % p.group * tiling.query_tiles() + q);
          if (tile.rows == 0) continue;
          first_query = tile.first_query;
          queries = std::max<std::int64_t>(queries, tile.rows);
          rows.load(tile, statistics, dout);
          for (std::int64_t k = all_keys ? 0 : kt; k < (all_keys ? key_tiles : kt + 1); ++k) {
            const std::int64_t j0 = std::max(key_cuts[static_cast<std::size_t>(k)], tile.any_begin);
            const std::int64_t j1 = std::min(key_cuts[static_cast<std::size_t>(k) + 1], tile.any_end);
            if (j0 >= j1) continue;
            const KeyTile keys = load_keys(plan, b, h / p.group, j0, j1, KeyUse::backward, scratch.keys);
            const TileGradients g = compute_gradients(plan, tile, keys, rows, GradientOf::masked_scores, scratch, bits);
            const int width = tile.kernels->width;
            const auto at = static_cast<int>(j0 - key_cuts[static_cast<std::size_t>(k)]);
            for (int i = 0; i < g.scores.segments; ++i) {
              const Segment& part = g.scores.segment[i];
              const int c0 = part.first * tile.kernels->lanes,
                        c1 = std::min(tile.rows, part.last * tile.kernels->lanes);
              for (int key = part.k0; key < part.k1; ++key)
                for (int c = c0; c < c1; ++c) {
                  const float d = scratch.ds[key * width + c];
                  if (all_queries && all_keys)
                    total += static_cast<double>(d);
                  else if (all_queries)
                    by_key[static_cast<std::size_t>(at + key)] += static_cast<double>(d);
                  else if (all_keys)
                    by_query[static_cast<std::size_t>(c)] += static_cast<double>(d);
                  else
                    sums[static_cast<std::size_t>((at + key) * kMaxWidth + c)] += d;
                }
            }
          }
        }
    const std::int64_t base = ob * axes.stride[0] + oh * axes.stride[1];
    const std::int64_t j0 = all_keys ? 0 : key_cuts[static_cast<std::size_t>(kt)];
    const std::int64_t j1 = all_keys ? 1 : key_cuts[static_cast<std::size_t>(kt) + 1];
    const std::int64_t widest = plan.table.tiles[plan.table.tile_count - 1].width;
    const std::int64_t tile_queries = std::max<std::int64_t>(1, std::min(p.q_len, widest));
    first_query = all_queries ? 0 : qt * tile_queries;
    const std::int64_t last_query = all_queries ? 1 : std::min(p.q_len, first_query + tile_queries);
    for (std::int64_t i = first_query; i < last_query; ++i)
      for (std::int64_t j = j0; j < j1; ++j) {
        const auto c = static_cast<std::size_t>(i - first_query), key = static_cast<std::size_t>(j - j0);
        float value = sums[key * kMaxWidth + c];
        if (all_queries && all_keys)
          value = static_cast<float>(total);
        else if (all_queries)
          value = static_cast<float>(by_key[key]);
        else if (all_keys)
          value = static_cast<float>(by_query[c]);
        narrow_elements(dmask.dtype, dmask.data, base + i * axes.stride[2] + j * axes.stride[3], 1, 1, &value);
      }
  };
  parallel_for(axes.size[0] * axes.size[1] * query_tasks * key_tasks, run);
}

}  // namespace qkv
