// SPDX-License-Identifier: Apache-2.0
#include "attention/tile.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/float_types.h"

namespace qkv {
namespace {

// The thread's memory: grows, never shrinks.
struct Arena {
  Tensor memory;
};
thread_local Arena arena;

std::int64_t round_up(std::int64_t x, std::int64_t step) noexcept { return (x + step - 1) / step * step; }

template <class T>
void widen_strided(const void* base, std::int64_t offset, std::int64_t stride, std::int64_t n, float* to) noexcept {
  const T* from = static_cast<const T*>(base) + offset;
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(widen(from[i * stride]));
}

template <class T>
void narrow_strided(void* base, std::int64_t offset, std::int64_t stride, std::int64_t n, const float* from) noexcept {
  T* to = static_cast<T*>(base) + offset;
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = narrow<T>(from[i]);
}

std::int64_t row_offset(const Dims& strides, const QueryTile& tile, int row) noexcept {
  return tile.b * strides[0] + tile.head(row) * strides[1] + tile.query(row) * strides[2];
}

}  // namespace

ScoreUnits score_units(const AttentionProblem& p) noexcept {
  const bool natural = p.softcap > 0 || !p.slopes.empty() || (p.mask && !p.boolean_mask);
  if (natural) return {static_cast<float>(p.scale), static_cast<float>(kLog2E)};
  return {static_cast<float>(p.scale * kLog2E), 1.0f};
}

Scratch::Scratch(const AttentionProblem& p)
    : d_k(p.d_k), d_v(p.d_v), d_k_padded(round_up(p.d_k, 16)), d_v_padded(round_up(p.d_v, 16)) {
  const std::int64_t widest = std::max(d_k_padded, d_v_padded);
  const std::int64_t need = (kMaxWidth * 8 + kKeyTile * 16) * widest + kMaxWidth * kKeyTile * 6 + 4096;
  if (arena.memory.size() < need) arena.memory = Tensor({need});
  qt = take(kMaxWidth * d_k_padded);
  dot = take(kMaxWidth * d_v_padded);
  s = take(kMaxWidth * kKeyTile);
  ds = take(kMaxWidth * kKeyTile);
  slope = take(kMaxWidth * kKeyTile);
  k = take(kKeyTile * d_k_padded);
  v = take(kKeyTile * d_v_padded);
  bias = take(kMaxWidth * kKeyTile);
  bias_rows = take(kMaxWidth * kKeyTile);
  rows = take(kMaxWidth * widest);
}

float* Scratch::take(std::int64_t floats) {
  float* p = arena.memory.data() + used_;
  used_ += static_cast<std::size_t>(round_up(floats, 16));
  if (used_ > static_cast<std::size_t>(arena.memory.size())) throw std::bad_alloc();
  return p;
}

RowTiling::RowTiling(const AttentionProblem& p, const KernelTable& table, std::int64_t max_heads)
    : p_(p), table_(table) {
  const std::int64_t widest = table.tiles[table.tile_count - 1].width;
  queries_ = std::max<std::int64_t>(1, std::min(p.q_len, widest));
  heads_ = std::clamp<std::int64_t>(widest / queries_, 1, std::min(p.group, max_heads));
  query_tiles_ = (p.q_len + queries_ - 1) / queries_;
  tiles_ = (p.group + heads_ - 1) / heads_ * query_tiles_;
}

QueryTile RowTiling::tile(std::int64_t b, std::int64_t kv_head, std::int64_t index) const {
  QueryTile t{};
  t.b = b;
  t.kv_head = kv_head;
  const std::int64_t first = index / query_tiles_ * heads_;
  t.first_head = kv_head * p_.group + first;
  t.heads = std::min(heads_, p_.group - first);
  t.first_query = index % query_tiles_ * queries_;
  const std::int64_t q_len = p_.sequences[static_cast<std::size_t>(b)].q_len;
  t.queries = std::max<std::int64_t>(1, std::min(queries_, q_len - t.first_query));
  t.rows = q_len > t.first_query ? static_cast<int>(t.heads * t.queries) : 0;
  t.kernels = &tile_for(table_, t.rows);
  if (t.rows == 0) return t;
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  t.any_begin = kFar, t.any_end = 0, t.all_begin = 0, t.all_end = kFar;
  for (int v = 0; v < 3; ++v) t.vector_begin[v] = kFar, t.vector_end[v] = 0;
  for (int r = 0; r < t.kernels->width; ++r) {
    const int row = std::min(r, t.rows - 1);
    const IndexRange keys = readable_keys(p_, b, t.query(row));
    t.begin[r] = keys.begin, t.end[r] = keys.end;
    t.slopes[r] = p_.slopes.empty() ? 0.0f : static_cast<float>(p_.slopes[static_cast<std::size_t>(t.head(row))]);
    t.all_begin = std::max(t.all_begin, keys.begin), t.all_end = std::min(t.all_end, keys.end);
    if (keys.empty()) continue;
    const int v = r / t.kernels->lanes;
    t.vector_begin[v] = std::min(t.vector_begin[v], keys.begin);
    t.vector_end[v] = std::max(t.vector_end[v], keys.end);
    t.any_begin = std::min(t.any_begin, keys.begin), t.any_end = std::max(t.any_end, keys.end);
  }
  t.any_begin = std::min(t.any_begin, t.any_end);
  return t;
}

void widen_elements(const KernelTable& table, DType dtype, const void* base, std::int64_t offset, std::int64_t stride,
                    std::int64_t n, float* to) noexcept {
  if (dtype == DType::bf16 && stride == 1)
    table.widen_bf16(static_cast<const std::uint16_t*>(base) + offset, n, to);
  else if (dtype == DType::f16 && stride == 1)
    table.widen_f16(static_cast<const std::uint16_t*>(base) + offset, n, to);
  else if (dtype == DType::f32)
    widen_strided<float>(base, offset, stride, n, to);
  else if (dtype == DType::bf16)
    widen_strided<bf16>(base, offset, stride, n, to);
  else if (dtype == DType::f16)
    widen_strided<f16>(base, offset, stride, n, to);
  else
    widen_strided<double>(base, offset, stride, n, to);
}

void narrow_elements(DType dtype, void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                     const float* from) noexcept {
  if (dtype == DType::f32)
    narrow_strided<float>(base, offset, stride, n, from);
  else if (dtype == DType::bf16)
    narrow_strided<bf16>(base, offset, stride, n, from);
  else if (dtype == DType::f16)
    narrow_strided<f16>(base, offset, stride, n, from);
  else
    narrow_strided<double>(base, offset, stride, n, from);
}

KeyTile load_keys(const AttentionProblem& p, const KernelTable& table, std::int64_t b, std::int64_t kv_head,
                  std::int64_t j0, std::int64_t j1, KeyParts parts, Scratch& scratch) noexcept {
  KeyTile t{j0, static_cast<int>(j1 - j0), nullptr, nullptr, 0, 0};
  const auto place = [&](const ConstView& x, std::int64_t d, std::int64_t padded, float* copy, std::int64_t& ld) {
    const Dims& s = x.strides;
    const std::int64_t offset = b * s[0] + kv_head * s[1] + j0 * s[2];
    if (x.dtype == DType::f32 && s[3] == 1 && d == padded) {
      ld = s[2];
      return static_cast<const float*>(x.data) + offset;
    }
    ld = padded;
    if (s[3] == 1 && s[2] == d && d == padded) {
      widen_elements(table, x.dtype, x.data, offset, 1, t.n * d, copy);
    } else {
      for (int j = 0; j < t.n; ++j) {
        widen_elements(table, x.dtype, x.data, offset + j * s[2], s[3], d, copy + j * padded);
        for (std::int64_t c = d; c < padded; ++c) copy[j * padded + c] = 0;
      }
    }
    return static_cast<const float*>(copy);
  };
  t.k = place(p.k, p.d_k, parts == KeyParts::padded_k_and_v ? round_up(p.d_k, 8) : p.d_k, scratch.k, t.ldk);
  if (parts != KeyParts::k) t.v = place(p.v, p.d_v, round_up(p.d_v, 8), scratch.v, t.ldv);
  return t;
}

void load_rows_transposed(const ConstView& x, const QueryTile& tile, std::int64_t d, float factor, Scratch& scratch,
                          float* t) noexcept {
  const Dims& s = x.strides;
  if (x.dtype == DType::f32 && s[3] == 1 && tile.heads == 1) {
    const float* first = static_cast<const float*>(x.data) + row_offset(s, tile, 0);
    tile.kernels->transpose_in(first, s[2], tile.rows, d, factor, t);
    return;
  }
  for (int r = 0; r < tile.rows; ++r)
    widen_elements(kernels(), x.dtype, x.data, row_offset(s, tile, r), s[3], d, scratch.rows + r * d);
  tile.kernels->transpose_in(scratch.rows, d, tile.rows, d, factor, t);
}

void store_rows_transposed(const float* t, const QueryTile& tile, std::int64_t d, const float* factor, View x,
                           Scratch& scratch) noexcept {
  const Dims& s = x.strides;
  if (x.dtype == DType::f32 && s[3] == 1 && tile.heads == 1) {
    tile.kernels->transpose_out(t, tile.rows, d, factor, static_cast<float*>(x.data) + row_offset(s, tile, 0), s[2]);
    return;
  }
  tile.kernels->transpose_out(t, tile.rows, d, factor, scratch.rows, d);
  for (int r = 0; r < tile.rows; ++r)
    narrow_elements(x.dtype, x.data, row_offset(s, tile, r), s[3], d, scratch.rows + r * d);
}

}  // namespace qkv
