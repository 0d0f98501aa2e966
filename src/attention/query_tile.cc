// SPDX-License-Identifier: Apache-2.0
#include "attention/query_tile.h"

#include <algorithm>
#include <limits>

#include "attention/elements.h"

namespace qkv {

namespace {

// Derives the key ranges of any row, all rows and each vector of rows from those of the single rows.
void find_bounds(QueryTile& t) noexcept {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  t.any_begin = kFar, t.any_end = 0, t.all_begin = 0, t.all_end = kFar;
  const int lanes = t.kernels->lanes;
  for (int v = 0; v < 3; ++v) t.vector_begin[v] = kFar, t.vector_end[v] = 0;
  for (int v = 0; v * lanes < t.kernels->width; ++v) {
    for (int r = v * lanes; r < (v + 1) * lanes; ++r) {
      t.all_begin = std::max(t.all_begin, t.begin[r]), t.all_end = std::min(t.all_end, t.end[r]);
      if (t.begin[r] >= t.end[r]) continue;
      t.vector_begin[v] = std::min(t.vector_begin[v], t.begin[r]);
      t.vector_end[v] = std::max(t.vector_end[v], t.end[r]);
    }
    t.any_begin = std::min(t.any_begin, t.vector_begin[v]), t.any_end = std::max(t.any_end, t.vector_end[v]);
  }
}

}  // namespace

RowTiling::RowTiling(const TilePlan& plan, std::int64_t max_heads) : plan_(plan) {
  const AttentionProblem& p = plan.p;
  const std::int64_t widest = plan.table.tiles[plan.table.tile_count - 1].width;
  queries_ = std::max<std::int64_t>(1, std::min(p.q_len, widest));
  heads_ = std::clamp<std::int64_t>(widest / queries_, 1, std::min(p.group, max_heads));
  query_tiles_ = (p.q_len + queries_ - 1) / queries_;
  tiles_ = (p.group + heads_ - 1) / heads_ * query_tiles_;
}

// Boundaries depend only on the query's index: gradients of keys are sums of per-tile sums.
std::int64_t RowTiling::first_query(std::int64_t query_tile) const noexcept {
  return std::min(query_tile * queries_, plan_.p.q_len);
}

QueryTile RowTiling::tile(std::int64_t b, std::int64_t kv_head, std::int64_t index) const {
  const AttentionProblem& p = plan_.p;
  QueryTile t{};
  t.b = b;
  t.kv_head = kv_head;
  const std::int64_t first = index / query_tiles_ * heads_;
  t.first_head = kv_head * p.group + first;
  t.heads = std::min(heads_, p.group - first);
  t.query_tile = index % query_tiles_;
  t.first_query = first_query(t.query_tile), t.past_query = first_query(t.query_tile + 1);
  const std::int64_t q_len = p.sequences[static_cast<std::size_t>(b)].q_len;
  t.queries = std::max<std::int64_t>(1, std::min(t.past_query, q_len) - t.first_query);
  t.rows = q_len > t.first_query ? static_cast<int>(t.heads * t.queries) : 0;
  t.kernels = &tile_for(plan_.table, t.rows);
  if (t.rows == 0) return t;
  const int width = t.kernels->width;
  for (int r = 0; r < t.rows; ++r) {  // later heads read the same keys as the first
    const std::int64_t same = r - t.queries;
    const IndexRange keys =
        same < 0 ? attendable_keys(p, b, t.first_query + r) : IndexRange{t.begin[same], t.end[same]};
    t.begin[r] = keys.begin, t.end[r] = keys.end;
  }
  std::fill(t.begin + t.rows, t.begin + width, t.begin[t.rows - 1]);
  std::fill(t.end + t.rows, t.end + width, t.end[t.rows - 1]);
  for (int r = 0; r < width && !p.slopes.empty(); ++r)
    t.slopes[r] = static_cast<float>(p.slopes[static_cast<std::size_t>(t.head(std::min(r, t.rows - 1)))]);
  for (int r = 0; r < width && p.dropout; ++r) {
    const int row = std::min(r, t.rows - 1);
    t.dropout.plane[r] = p.plane(b, t.head(row)), t.dropout.query[r] = static_cast<std::uint32_t>(t.query(row));
  }
  find_bounds(t);
  t.any_begin = std::min(t.any_begin, t.any_end);
  const std::int64_t into = (t.any_begin + p.first_key) % kKeyTile;
  t.any_begin = std::max<std::int64_t>(0, t.any_begin - into);
  if (t.any_end == 0) t.any_begin = 0;
  return t;
}

void load_rows_transposed(const ConstView& x, const QueryTile& tile, std::int64_t d, Scratch& scratch,
                          float* t) noexcept {
  const Dims& s = x.strides;
  if (x.dtype == DType::f32 && s[3] == 1 && tile.heads == 1) {
    const float* first = static_cast<const float*>(x.data) + row_offset(s, tile, 0);
    tile.kernels->transpose_in(first, s[2], tile.rows, d, t);
    return;
  }
  for (int r = 0; r < tile.rows; ++r)
    widen_elements(x.dtype, x.data, row_offset(s, tile, r), s[3], d, scratch.rows + r * d);
  tile.kernels->transpose_in(scratch.rows, d, tile.rows, d, t);
}

void load_rows_in_pairs(const ConstView& x, const QueryTile& tile, std::int64_t d, Scratch& scratch,
                        std::uint16_t* t_pairs) noexcept {
  const Dims& s = x.strides;
  const auto* from = static_cast<const std::uint16_t*>(x.data);
  const Bf16TileKernels& kernel = *tile.kernels->bf16;
  if (s[3] == 1 && tile.heads == 1 && d % 2 == 0) {
    kernel.transpose_pairs(from + row_offset(s, tile, 0), s[2], tile.rows, d / 2, t_pairs);
    return;
  }
  const std::int64_t even = round_up(d, 2);
  auto* rows = reinterpret_cast<std::uint16_t*>(scratch.rows);  // [rows][even]
  for (int r = 0; r < tile.rows; ++r) {
    const std::int64_t offset = row_offset(s, tile, r);
    for (std::int64_t c = 0; c < d; ++c) rows[r * even + c] = from[offset + c * s[3]];
    if (even > d) rows[r * even + d] = 0;
  }
  kernel.transpose_pairs(rows, even, tile.rows, even / 2, t_pairs);
}

void store_rows_transposed(const float* t, const QueryTile& tile, std::int64_t d, const float* factor, View x,
                           Scratch& scratch) noexcept {
  const Dims& s = x.strides;
  if (x.dtype == DType::f32 && s[3] == 1 && tile.heads == 1) {
    tile.kernels->transpose_out(t, tile.rows, d, factor, static_cast<float*>(x.data) + row_offset(s, tile, 0), s[2]);
    return;
  }
  tile.kernels->transpose_out(t, tile.rows, d, factor, scratch.rows, d);
  if (s[3] == 1 && s[2] == d && tile.heads == 1)
    return narrow_elements(x.dtype, x.data, row_offset(s, tile, 0), 1, tile.rows * d, scratch.rows);
  for (int r = 0; r < tile.rows; ++r)
    narrow_elements(x.dtype, x.data, row_offset(s, tile, r), s[3], d, scratch.rows + r * d);
}

void drop_pairs(const TilePlan& plan, const QueryTile& tile, std::int64_t key, int n, int first, int last, float scale,
                float* s) noexcept {
  const Dropout& d = plan.p.dropout;
  const int lanes = tile.kernels->lanes;
  if (d)
    row_kernels().drop_pairs({d.seed, d.threshold, scale}, tile.dropout, static_cast<std::uint32_t>(key), n,
                             first * lanes, last * lanes, tile.kernels->width, scale, s);
}

void drop_bf16_pairs(const TilePlan& plan, const QueryTile& tile, std::int64_t key, int n, int first, int last,
                     std::uint16_t* pairs) noexcept {
  const Dropout& d = plan.p.dropout;
  const int lanes = tile.kernels->lanes;
  if (d)
    row_kernels().drop_bf16_pairs({d.seed, d.threshold, 1}, tile.dropout, static_cast<std::uint32_t>(key), n,
                                  first * lanes, last * lanes, tile.kernels->width, pairs);
}

}  // namespace qkv
