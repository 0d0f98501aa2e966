// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_scores.h"

#include <algorithm>
#include <limits>

#include "attention/elements.h"

namespace qkv {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kSegmentStep = 8;  // keys
constexpr int kMaskKeys = 32;    // keys whose mask values fit in the L1 cache before they are transposed

// Splits the key tile where the set of vectors that read it changes, and around the keys that every row reads.
void cut_segments(const QueryTile& tile, const KeyTile& keys, TileScores& scores) noexcept {
  const int vectors = tile.kernels->width / tile.kernels->lanes;
  int begin[3], end[3], cuts[kMaxSegments], count = 0;
  const auto insert = [&](int cut) {
    int at = count++;
    for (; at > 0 && cuts[at - 1] > cut; --at) cuts[at] = cuts[at - 1];
    cuts[at] = cut;
  };
  const auto inside = [&](std::int64_t j) {
    return static_cast<int>(std::clamp<std::int64_t>(j - keys.j0, 0, keys.n));
  };
  for (int v = 0; v < vectors; ++v) {
    begin[v] = inside(tile.vector_begin[v]) / kSegmentStep * kSegmentStep;
    end[v] = std::min(keys.n, (inside(tile.vector_end[v]) + kSegmentStep - 1) / kSegmentStep * kSegmentStep);
    if (begin[v] >= end[v]) continue;
    insert(begin[v]);
    insert(end[v]);
  }
  const int all_begin = inside(tile.all_begin), all_end = inside(tile.all_end);
  if (all_begin < all_end) {
    insert(std::min(keys.n, (all_begin + kSegmentStep - 1) / kSegmentStep * kSegmentStep));
    insert(all_end == keys.n ? keys.n : all_end / kSegmentStep * kSegmentStep);
  }
  for (int c = 0; c + 1 < count; ++c) {
    if (cuts[c] == cuts[c + 1]) continue;
    Segment g{cuts[c], cuts[c + 1], vectors, 0, cuts[c] < all_begin || cuts[c + 1] > all_end};
    for (int v = 0; v < vectors; ++v)
      if (begin[v] < g.k1 && end[v] > g.k0) g.first = std::min(g.first, v), g.last = std::max(g.last, v + 1);
    if (g.first < g.last) scores.segment[scores.segments++] = g;
  }
}

// One row of the mask as additive biases for keys j0 ... j0 + n. Returns how many keys are not masked.
int mask_row(const AttentionProblem& p, std::int64_t offset, int n, float* to) noexcept {
  const std::int64_t stride = p.mask.strides[3];
  if (stride == 0 && n > 1) {  // the same for all keys
    const int allowed = mask_row(p, offset, 1, to);
    std::fill_n(to + 1, n - 1, to[0]);
    return allowed * n;
  }
  int allowed = 0;
  if (p.boolean_mask) {
    const auto* from = static_cast<const unsigned char*>(p.mask.data) + offset;
    const auto each = [&](std::int64_t step) {
      for (int j = 0; j < n; ++j) {
        const int yes = from[j * step] != 0;
        allowed += yes;
        to[j] = yes ? 0.0f : kMinusInfinity;
      }
    };
    stride == 1 ? each(1) : each(stride);
    return allowed;
  }
  widen_elements(p.mask.dtype, p.mask.data, offset, stride, n, to);
  for (int j = 0; j < n; ++j) allowed += to[j] != kMinusInfinity;
  return allowed;
}

// An f32 mask, without copying its rows. Returns whether any pair is not masked.
bool transpose_mask(const QueryTile& tile, const float* rows, std::int64_t ld, int n, float* bias) noexcept {
  tile.kernels->transpose_in(rows, ld, tile.rows, n, bias);
  for (int r = 0; r < tile.rows; ++r)
    for (int j = 0; j < n; ++j)
      if (rows[r * ld + j] != kMinusInfinity) return true;
  return false;
}

// The mask of the pair of tiles in scratch.bias, [n][width]. Returns the number of unmasked pairs; for a floating mask,
// 0 or any nonzero number.
std::int64_t load_mask(const AttentionProblem& p, const QueryTile& tile, const KeyTile& keys,
                       Scratch& scratch) noexcept {
  const Dims& s = p.mask.strides;
  const int width = tile.kernels->width;
  const auto offset = [&](int row) {
    return tile.b * s[0] + tile.head(row) * s[1] + tile.query(row) * s[2] + keys.j0 * s[3];
  };
  if (s[2] == 0 && (tile.heads == 1 || s[1] == 0)) {  // the same for all rows
    const int allowed = mask_row(p, offset(0), keys.n, scratch.bias_rows);
    for (int j = 0; j < keys.n; ++j) std::fill_n(scratch.bias + j * width, width, scratch.bias_rows[j]);
    return std::int64_t{allowed} * tile.rows;
  }
  if (p.mask.dtype == DType::f32 && s[3] == 1 && tile.heads == 1)
    return transpose_mask(tile, static_cast<const float*>(p.mask.data) + offset(0), s[2], keys.n, scratch.bias);
  std::int64_t allowed = 0;
  for (int j = 0; j < keys.n; j += kMaskKeys) {
    const int n = std::min(kMaskKeys, keys.n - j);
    for (int r = 0; r < tile.rows; ++r)
      allowed += mask_row(p, offset(r) + j * s[3], n, scratch.bias_rows + r * kMaskKeys);
    tile.kernels->transpose_in(scratch.bias_rows, kMaskKeys, tile.rows, n, scratch.bias + j * width);
  }
  return allowed;
}

// Where each row's readable keys begin and end, relative to the key tile's first key: [width] each.
void find_limits(const QueryTile& tile, const KeyTile& keys, float* begin, float* end) noexcept {
  for (int r = 0; r < tile.kernels->width; ++r) {
    begin[r] = static_cast<float>(std::clamp<std::int64_t>(tile.begin[r] - keys.j0, 0, kKeyTile));
    end[r] = static_cast<float>(std::clamp<std::int64_t>(tile.end[r] - keys.j0, 0, kKeyTile));
  }
}

void add_alibi(const AttentionProblem& p, const QueryTile& tile, const KeyTile& keys, const Segment& g,
               float* s) noexcept {
  const std::int64_t start = p.sequences[static_cast<std::size_t>(tile.b)].start;
  float distances[kMaxWidth];  // from each row's position to the segment's first key
  for (int r = 0; r < tile.kernels->width; ++r)
    distances[r] = static_cast<float>(keys.j0 + g.k0 - start - tile.query(std::min(r, tile.rows - 1)));
  tile.kernels->alibi(tile.slopes, distances, g.k1 - g.k0, g.first, g.last, s);
}

}  // namespace

TileScores compute_scores(const TilePlan& plan, const QueryTile& tile, const KeyTile& keys, Scratch& scratch,
                          bool want_slope) noexcept {
  const AttentionProblem& p = plan.p;
  const TileKernels& kernel = *tile.kernels;
  const int width = kernel.width;
  TileScores scores;
  bool masked = false;
  if (p.mask) {
    const std::int64_t allowed = load_mask(p, tile, keys, scratch);
    if (allowed == 0) return scores;
    masked = !p.boolean_mask || allowed < std::int64_t{tile.rows} * keys.n;
  }
  const bool limited = keys.j0 < tile.all_begin || keys.j0 + keys.n > tile.all_end;
  scores.partial = limited || masked;
  float begin[kMaxWidth], end[kMaxWidth];
  if (limited) {
    cut_segments(tile, keys, scores);
    find_limits(tile, keys, begin, end);
  } else {
    scores.segment[scores.segments++] = {0, keys.n, 0, width / kernel.lanes, false};
  }
  std::fill_n(scores.max, width, kMinusInfinity);

  const bool all_changed = plan.score_factor != 1 || p.softcap > 0 || !p.slopes.empty() || masked;
  float ignored[kMaxWidth];
  std::fill_n(ignored, width, kMinusInfinity);
  for (int i = 0; i < scores.segments; ++i) {
    const Segment& g = scores.segment[i];
    const int n = g.k1 - g.k0;
    float* s = scratch.s + g.k0 * width;
    const bool changed = all_changed || g.limited;
    float* max = changed ? ignored : scores.max;
    scratch.ahead.step();
    if (plan.bf16)
      kernel.bf16->scores(keys.k16 + g.k0 * keys.ldk, keys.ldk, scratch.qt_pairs, (p.d_k + 1) / 2, n, tile.rows,
                          g.first, g.last, s, max);
    else
      kernel.scores(keys.k + g.k0 * keys.ldk, keys.ldk, scratch.qt, p.d_k, n, tile.rows, g.first, g.last, s, max);
    if (!changed) continue;
    if (plan.score_factor != 1) kernel.scale(plan.score_factor, n, g.first, g.last, s);
    if (p.softcap > 0)
      kernel.softcap(static_cast<float>(p.softcap), n, g.first, g.last, s,
                     want_slope ? scratch.slope + g.k0 * width : nullptr);
    if (!p.slopes.empty()) add_alibi(p, tile, keys, g, s);
    if (masked) kernel.add(scratch.bias + g.k0 * width, n, g.first, g.last, s);
    if (g.limited) kernel.limit(begin, end, g.k0, n, g.first, g.last, s);
    kernel.column_max(s, n, g.first, g.last, scores.max);
  }
  return scores;
}

}  // namespace qkv
