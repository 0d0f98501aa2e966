// SPDX-License-Identifier: Apache-2.0
// The kernel dispatch table: raw pointers, noexcept, no allocation, no option handling. One table per instruction set,
// selected once at run time; QKV_KERNELS=portable|avx2|avx512|avx512_bf16 overrides the selection.
//
// A tile is `width` query rows (vector lanes) by up to kKeyTile keys. Matrices of a tile have one row per key or head
// dimension and one column per query, so that maximum, sum and rescaling of a query are vertical and a query's result
// never depends on its neighbours, the tile's width or the number of keys per call:
//   qt  [d][width]      queries, transposed          s   [keys][width]   scores, then probabilities
//   ot  [d_v][width]    sums of p * v, transposed    m, l [width]        reference maximum and sum of each query
// Functions take the vectors [first, last) of the tile to process: first * lanes <= column < last * lanes. Columns from
// `rows` on are unused, but contain finite numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qkv {

inline constexpr int kKeyTile = 128;  // keys per tile; tiles begin at absolute key positions divisible by it
inline constexpr int kMaxWidth = 48;  // queries in the widest tile of any instruction set

// Products of bf16 with f32 sums, for processors that support them. Arrays called pairs interleave two neighbours along
// the summed axis: qt_pairs [d / 2][width][2], p_pairs [keys / 2][width][2], v_pairs [keys / 2][ldv][2]; an odd number
// of keys is padded with 0. n counts keys.
struct Bf16TileKernels {
  // Like TileKernels::scores; k has rows of d / 2 pairs, stride ldk in elements.
  void (*scores)(const std::uint16_t* k, std::int64_t ldk, const std::uint16_t* qt_pairs, std::int64_t d_pairs, int n,
                 int rows, int first, int last, float* s, float* tile_max) noexcept;
  // Like exponentials, but the result goes to p_pairs and s is unchanged; uses a polynomial of bf16 accuracy.
  void (*exponentials)(float unit, int n, int first, int last, const float* m, float* l, const float* s,
                       std::uint16_t* p_pairs) noexcept;
  // Like accumulate; n_pairs counts pairs of keys.
  void (*accumulate)(const std::uint16_t* p_pairs, const std::uint16_t* v_pairs, std::int64_t ldv, std::int64_t d_v,
                     int n_pairs, int rows, int first, int last, bool fresh, float* ot) noexcept;
  // Like outer; p [keys][width], x_pairs [rows / 2][ldx][2]; row_pairs counts pairs of rows.
  void (*outer)(const std::uint16_t* p, const std::uint16_t* x_pairs, std::int64_t ldx, std::int64_t cols, int n,
                int row_pairs, float* c, std::int64_t ldc) noexcept;
  // Rounds f32 x [n][width] to rows [n][width], and to pairs [n / 2][width][2] unless null.
  void (*round)(const float* x, int n, int first, int last, std::uint16_t* rows, std::uint16_t* pairs) noexcept;
  // t_pairs[c][i] = the pair (x[i * ldx + 2 c], x[i * ldx + 2 c + 1]) for i < rows, 0 for the other columns.
  void (*transpose_pairs)(const std::uint16_t* x, std::int64_t ldx, int rows, std::int64_t d_pairs,
                          std::uint16_t* t_pairs) noexcept;
  // Like accumulate, but from n unpacked rows of v with d columns; ot has them padded to a multiple of 8. Null for wide
  // tiles, where packed pairs are reused by many rows.
  void (*accumulate_rows)(const std::uint16_t* p_pairs, const std::uint16_t* v, std::int64_t ldv, std::int64_t d, int n,
                          int rows, bool fresh, float* ot) noexcept;
};

// The f32 kernels of one tile width. n counts keys; every pointer is to f32.
struct TileKernels {
  int width;  // queries per tile
  int lanes;  // queries per vector

  // s[j][i] = sum over c of k[j * ldk + c] * qt[c][i], one chain in the order of c; tile_max[i] = max with s[.][i].
  void (*scores)(const float* k, std::int64_t ldk, const float* qt, std::int64_t d, int n, int rows, int first,
                 int last, float* s, float* tile_max) noexcept;
  // tile_max[i] = max(tile_max[i], s[.][i]); NaN is ignored.
  void (*column_max)(const float* s, int n, int first, int last, float* tile_max) noexcept;
  // For each query whose tile maximum exceeds its reference maximum by more than 8 / unit: m = tile_max, and l and ot
  // (unless null) rescaled accordingly. 2^(score * unit) is the exponential of the softmax.
  void (*rescale)(float unit, const float* tile_max, std::int64_t d_v, float* m, float* l, float* ot) noexcept;
  // s = exp2((s - m) * unit), l += s in the order of keys.
  void (*exponentials)(float unit, int n, int first, int last, const float* m, float* l, float* s) noexcept;
  // ot[c][i] += sum over j of p[j][i] * v[j * ldv + c], a chain in the order of j, from 0 if `fresh`. d_v % 8 == 0.
  void (*accumulate)(const float* p, const float* v, std::int64_t ldv, std::int64_t d_v, int n, int rows, int first,
                     int last, bool fresh, float* ot) noexcept;
  // Merges a later split (split_m, split_l, split_ot) into the total (m, l, ot).
  void (*merge)(float unit, std::int64_t d_v, const float* split_m, const float* split_l, const float* split_ot,
                float* m, float* l, float* ot) noexcept;

  // Score modifications before the softmax, in the order in which they are applied.
  void (*softcap)(float cap, int n, int first, int last, float* s, float* slope) noexcept;  // slope: 1 - tanh^2 or null
  void (*alibi)(const float* slopes, const float* distances, int n, int first, int last, float* s) noexcept;
  void (*add)(const float* bias, int n, int first, int last, float* s) noexcept;  // bias [keys][width]
  // Sets s to -inf outside begin[i] <= j + key < end[i], which are given as f32.
  void (*limit)(const float* begin, const float* end, int key, int n, int first, int last, float* s) noexcept;
  // allowed[j]: bit i is set where s[j][i] is not -inf.
  void (*allowed_bits)(const float* s, int n, std::uint64_t* allowed) noexcept;

  // Backward: s = p = exp2((s - lse) * unit), 0 where s is -inf; ds = p * (dp - delta) overwrites dp, also 0 there.
  void (*backward_softmax)(float unit, int n, int first, int last, const float* lse, const float* delta, float* s,
                           float* dp) noexcept;

  // c[j * ldc + col] += sum over i of p[j][i] * x[i * ldx + col], a chain in the order of i < rows; cols % vector == 0.
  void (*outer)(const float* p, const float* x, std::int64_t ldx, std::int64_t cols, int n, int rows, float* c,
                std::int64_t ldc) noexcept;

  // t[c][i] = x[i * ldx + c] for i < rows, 0 for the tile's other columns.
  void (*transpose_in)(const float* x, std::int64_t ldx, int rows, std::int64_t d, float* t) noexcept;
  // x[i * ldx + c] = t[c][i] * factor[i] + 0 for i < rows.
  void (*transpose_out)(const float* t, int rows, std::int64_t d, const float* factor, float* x,
                        std::int64_t ldx) noexcept;

  // dots[i] = sum over c of a[c][i] * b[c][i], in the same chain order as `scores`.
  void (*column_dots)(const float* a, const float* b, std::int64_t d, float* dots) noexcept;
  void (*scale)(float factor, int n, int first, int last, float* s) noexcept;  // s *= factor
  const Bf16TileKernels* bf16;                                                 // null if not supported
};

struct KernelTable {
  std::string_view name;
  int tile_count;
  TileKernels tiles[6];  // ascending width

  // pairs[i][c] = (x[2 i][c], x[2 i + 1][c]) for c < cols, 0 for the columns up to `padded` and for a missing last row;
  // null where `bf16` of the tiles is null.
  void (*interleave)(const std::uint16_t* x, std::int64_t ldx, int rows, std::int64_t cols, std::int64_t padded,
                     std::uint16_t* pairs) noexcept;
  bool (*all_finite)(const float* x, std::int64_t ldx, int rows, std::int64_t cols) noexcept;
  bool (*all_finite_bf16)(const std::uint16_t* x, std::int64_t ldx, int rows, std::int64_t cols) noexcept;
  void (*widen_bf16)(const std::uint16_t* x, std::int64_t n, float* y) noexcept;
  void (*widen_f16)(const std::uint16_t* x, std::int64_t n, float* y) noexcept;
  void (*narrow_bf16)(const float* x, std::int64_t n, std::uint16_t* y) noexcept;  // to nearest even
  // n numbers of Q8_0 blocks (core/block_types.h); the last block may be read partially.
  void (*widen_q8_0)(const std::byte* blocks, std::int64_t n, float* y) noexcept;
};

// The selected table: QKV_KERNELS if it is set, else the best for cpu_level(). Throws std::invalid_argument if
// QKV_KERNELS names an unknown set or one above that level.
const KernelTable& kernels();

// The narrowest tile of the table that fits `rows` queries, or its widest tile.
const TileKernels& tile_for(const KernelTable& table, std::int64_t rows) noexcept;

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
#endif

}  // namespace qkv
