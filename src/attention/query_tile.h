// SPDX-License-Identifier: Apache-2.0
// How query rows are divided into tiles. The rows of one (sequence, key head) form tiles of up to `width` rows; where
// q_len is short, a tile contains the rows of several query heads that share the key head.
#pragma once

#include <cstdint>

#include "attention/mask.h"
#include "attention/tile_plan.h"
#include "kernels/row_kernels.h"

namespace qkv {

// Rows r = 0 ... rows - 1 of a tile are (first_head + r / queries, first_query + r % queries).
struct QueryTile {
  const TileKernels* kernels;
  std::int64_t b, kv_head, first_head, heads, first_query, queries;
  std::int64_t query_tile, past_query;  // index along the queries; first query of the next tile, or q_len
  int rows;
  std::int64_t begin[kMaxWidth], end[kMaxWidth];  // keys that each row may attend to; unused columns: as the last
  std::int64_t any_begin, any_end;                // keys that some row reads, rounded down to a key tile boundary
  std::int64_t all_begin, all_end;                // keys that every row reads
  std::int64_t vector_begin[3], vector_end[3];
  float slopes[kMaxWidth];
  DropoutColumns dropout;  // only with dropout

  // Called for every row, so it avoids the division where there is only one head.
  std::int64_t head(int row) const noexcept { return heads == 1 ? first_head : first_head + row / queries; }
  std::int64_t query(int row) const noexcept { return first_query + (heads == 1 ? row : row % queries); }
};

// How the query rows of one key head are divided.
class RowTiling {
 public:
  // max_heads: the largest number of query heads in a tile.
  RowTiling(const TilePlan& plan, std::int64_t max_heads = kMaxWidth);
  std::int64_t tiles() const noexcept { return tiles_; }                           // per (sequence, key head)
  std::int64_t query_tiles() const noexcept { return query_tiles_; }               // along the queries
  QueryTile tile(std::int64_t b, std::int64_t kv_head, std::int64_t index) const;  // rows may be 0

 private:
  std::int64_t first_query(std::int64_t query_tile) const noexcept;

  const TilePlan& plan_;
  std::int64_t heads_, queries_, query_tiles_, tiles_;
};

// Rows of the tile (of q or an array shaped like it), transposed: t[c][row] = x[row][c].
void load_rows_transposed(const ConstView& x, const QueryTile& tile, std::int64_t d, Scratch& scratch,
                          float* t) noexcept;
// The same for bf16 rows, in pairs: t_pairs[c / 2][row][c % 2] = x[row][c].
void load_rows_in_pairs(const ConstView& x, const QueryTile& tile, std::int64_t d, Scratch& scratch,
                        std::uint16_t* t_pairs) noexcept;
// x[row][c] = t[c][row] * factor[row], in x's type.
void store_rows_transposed(const float* t, const QueryTile& tile, std::int64_t d, const float* factor, View x,
                           Scratch& scratch) noexcept;

// Dropout of keys [key, key + n) and the vectors [first, last) in s [n][width]: s * scale where the pair is kept, else
// s * 0. In pairs [n / 2][width][2], kept elements are unchanged and the others set to 0. No-op without dropout.
void drop_pairs(const TilePlan& plan, const QueryTile& tile, std::int64_t key, int n, int first, int last, float scale,
                float* s) noexcept;
void drop_bf16_pairs(const TilePlan& plan, const QueryTile& tile, std::int64_t key, int n, int first, int last,
                     std::uint16_t* pairs) noexcept;

// Offset of row `row` of the tile in an array with these strides, in elements.
inline std::int64_t row_offset(const Dims& strides, const QueryTile& tile, int row) noexcept {
  return tile.b * strides[0] + tile.head(row) * strides[1] + tile.query(row) * strides[2];
}

}  // namespace qkv
