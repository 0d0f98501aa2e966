// SPDX-License-Identifier: Apache-2.0
// What the tiled passes share: how query rows and keys are cut into tiles, and the scores of one pair of tiles.
//
// Query rows of one (sequence, key head) are tiles of up to `width` rows; where q_len is short, a tile holds the rows
// of several query heads that share the key head. Keys are tiles of kKeyTile that begin at absolute positions
// (first_key + j) divisible by it, and kSplitTiles tiles make a split. A row's bits depend on the key tiles alone.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/mask.h"
#include "attention/problem.h"
#include "kernels/kernels.h"

namespace qkv {

inline constexpr int kSplitKeys = 512;  // keys of a split of the forward pass
inline constexpr int kMaxSegments = 8;
inline constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

// Scores are kept in log2 units where nothing but the scale touches them (log2(e) is folded into the queries), and in
// natural units where a bias or softcap does: lowest float * log2(e) would be -inf.
struct ScoreUnits {
  float query_factor;  // queries are multiplied by it
  float unit;          // 2^(score * unit) = e^(natural score)
};
ScoreUnits score_units(const AttentionProblem& p) noexcept;

// Memory of one thread, kept between calls. Row-major, columns are queries of the tile.
struct Scratch {
  explicit Scratch(const AttentionProblem& p);  // throws std::bad_alloc
  float* take(std::int64_t floats);             // 64-byte aligned
  std::int64_t d_k, d_v;
  std::int64_t d_k_padded, d_v_padded;  // multiples of 16
  float *qt, *dot;                      // [d_k][width] queries, [d_v][width] gradients of the output
  float *s, *ds, *slope;                // [kKeyTile][width]
  float *k, *v;             // [kKeyTile][d_k_padded], [kKeyTile][d_v_padded]: copies, where the caller's do not serve
  float *bias, *bias_rows;  // [kKeyTile][width], [width][kKeyTile]
  float* rows;              // [width][max(d_k_padded, d_v_padded)]

 private:
  std::size_t used_ = 0;
};

// Rows r = 0 ... rows - 1 of a tile are (first_head + r / queries, first_query + r % queries).
struct QueryTile {
  const TileKernels* kernels;
  std::int64_t b, kv_head, first_head, heads, first_query, queries;
  int rows;
  std::int64_t begin[kMaxWidth], end[kMaxWidth];  // keys that structure lets each row read; unused columns as the last
  std::int64_t any_begin, any_end;                // keys that some row reads
  std::int64_t all_begin, all_end;                // keys that every row reads
  std::int64_t vector_begin[3], vector_end[3];
  float slopes[kMaxWidth];

  std::int64_t head(int row) const noexcept { return first_head + row / queries; }
  std::int64_t query(int row) const noexcept { return first_query + row % queries; }
};

// How the query rows of one key head are cut.
class RowTiling {
 public:
  // max_heads: how many query heads a tile may hold.
  RowTiling(const AttentionProblem& p, const KernelTable& table, std::int64_t max_heads = kMaxWidth);
  std::int64_t tiles() const noexcept { return tiles_; }                           // for each (sequence, key head)
  std::int64_t query_tiles() const noexcept { return query_tiles_; }               // of them, along the queries
  QueryTile tile(std::int64_t b, std::int64_t kv_head, std::int64_t index) const;  // rows may be 0

 private:
  const AttentionProblem& p_;
  const KernelTable& table_;
  std::int64_t heads_, queries_, query_tiles_, tiles_;
};

// [j0, j0 + n): the keys of a tile, and where their rows are.
struct KeyTile {
  std::int64_t j0;
  int n;
  const float* k;  // [n][d_k], row stride ldk; padded with zeros to a multiple of 8 columns if asked for
  const float* v;  // [n][d_v], row stride ldv; padded with zeros to a multiple of 8 columns
  std::int64_t ldk, ldv;
};

// The keys [begin, end) cut at absolute positions divisible by `step`: first the piece that holds `begin`.
struct KeySteps {
  std::int64_t begin, end, first_key, step;
  std::int64_t next(std::int64_t j) const noexcept {  // the end of the piece that starts at j
    const std::int64_t into = (((first_key + j) % step) + step) % step;
    return std::min(end, j - into + step);
  }
};

enum class KeyParts : std::uint8_t { k, k_and_v, padded_k_and_v };
KeyTile load_keys(const AttentionProblem& p, const KernelTable& table, std::int64_t b, std::int64_t kv_head,
                  std::int64_t j0, std::int64_t j1, KeyParts parts, Scratch& scratch) noexcept;

// Queries (or any array shaped like them) of the tile, transposed: t[c][row] = x[row][c] * factor.
void load_rows_transposed(const ConstView& x, const QueryTile& tile, std::int64_t d, float factor, Scratch& scratch,
                          float* t) noexcept;
// x[row][c] = t[c][row] * factor[row], in x's type.
void store_rows_transposed(const float* t, const QueryTile& tile, std::int64_t d, const float* factor, View x,
                           Scratch& scratch) noexcept;

// Copies n elements with a stride, widened to f32.
void widen_elements(const KernelTable& table, DType dtype, const void* base, std::int64_t offset, std::int64_t stride,
                    std::int64_t n, float* to) noexcept;
// Writes n f32 elements in the view's type.
void narrow_elements(DType dtype, void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                     const float* from) noexcept;

// Keys [k0, k1) of a key tile that the vectors [first, last) read.
struct Segment {
  int k0, k1, first, last;
};

struct TileScores {
  int segments = 0;
  Segment segment[kMaxSegments];
  bool partial = false;  // some pair of the tiles may not be read
  float max[kMaxWidth];  // of each row
};

// s[j][row] for the key tile: scaled, capped, biased, -inf where reading is not allowed, in the problem's units.
// slope, if not null, gets 1 - tanh^2 of the softcap. No segments: no row reads any of these keys.
TileScores compute_scores(const AttentionProblem& p, const QueryTile& tile, const KeyTile& keys, const float* qt,
                          Scratch& scratch, float* s, float* slope) noexcept;

}  // namespace qkv
