// SPDX-License-Identifier: Apache-2.0
#include "attention/key_tile.h"

#include <cmath>
#include <cstring>

#include "attention/elements.h"
#include "core/float_types.h"
#include "core/parallel.h"

namespace qkv {
namespace {

// Rows of f32 with zeros from column d up to `padded`: the caller's if they have that layout, else a copy.
const float* rows_of(const ConstView& x, std::int64_t offset, int n, std::int64_t d, std::int64_t padded, float* copy,
                     std::int64_t& ld) noexcept {
  const Dims& s = x.strides;
  if (x.dtype == DType::f32 && s[3] == 1 && d == padded) {
    ld = s[2];
    return static_cast<const float*>(x.data) + offset;
  }
  ld = padded;
  if (s[3] == 1 && s[2] == d && d == padded) {
    widen_elements(x.dtype, x.data, offset, 1, n * d, copy);
    return copy;
  }
  for (int j = 0; j < n; ++j) {
    widen_elements(x.dtype, x.data, offset + j * s[2], s[3], d, copy + j * padded);
    std::fill(copy + j * padded + d, copy + (j + 1) * padded, 0.0f);
  }
  return copy;
}

// The same for bf16.
const std::uint16_t* rows16_of(const ConstView& x, std::int64_t offset, int n, std::int64_t d, std::uint16_t* copy,
                               std::int64_t& ld) noexcept {
  const Dims& s = x.strides;
  const auto* from = static_cast<const std::uint16_t*>(x.data) + offset;
  if (s[3] == 1 && d % 2 == 0) {
    ld = s[2];
    return from;
  }
  ld = round_up(d, 2);
  for (int j = 0; j < n; ++j) {
    for (std::int64_t c = 0; c < d; ++c) copy[j * ld + c] = from[j * s[2] + c * s[3]];
    if (ld > d) copy[j * ld + d] = 0;
  }
  return copy;
}

// Copies rows, moving non-finite elements to the list.
NonFinites take_non_finites(const float* x, std::int64_t ldx, int n, std::int64_t d, float* copy, std::int64_t ld) {
  NonFinites non_finites;
  for (int j = 0; j < n; ++j)
    for (std::int64_t c = 0; c < d; ++c) {
      const float value = x[j * ldx + c];
      copy[j * ld + c] = std::isfinite(value) ? value : 0.0f;
      if (!std::isfinite(value)) non_finites.push_back({j, c, value});
    }
  return non_finites;
}

NonFinites take_non_finites(const std::uint16_t* x, std::int64_t ldx, int n, std::int64_t d, std::uint16_t* copy,
                            std::int64_t ld) {
  NonFinites non_finites;
  for (int j = 0; j < n; ++j)
    for (std::int64_t c = 0; c < d; ++c) {
      const float value = widen(bf16{x[j * ldx + c]});
      copy[j * ld + c] = std::isfinite(value) ? x[j * ldx + c] : std::uint16_t{0};
      if (!std::isfinite(value)) non_finites.push_back({j, c, value});
    }
  return non_finites;
}

bool keys_finite(const KeyTile& t, const TilePlan& plan) noexcept {
  return plan.bf16 ? plan.table.all_finite_bf16(t.k16, t.ldk, t.n, plan.p.d_k)
                   : plan.table.all_finite(t.k, t.ldk, t.n, plan.p.d_k);
}

}  // namespace

bool values_finite(const KeyTile& t, const TilePlan& plan) noexcept {
  return plan.bf16 ? plan.table.all_finite_bf16(t.v16, t.ldv, t.n, plan.p.d_v)
                   : plan.table.all_finite(t.v, t.ldv, t.n, plan.p.d_v);
}

bool rows_in_place(const TilePlan& plan) noexcept {
  const AttentionProblem& p = plan.p;
  const DType wanted = plan.bf16 ? DType::bf16 : DType::f32;
  return p.k.dtype == wanted && p.k.strides[3] == 1 && p.v.dtype == wanted && p.v.strides[3] == 1 &&
         (!plan.bf16 || p.d_k % 2 == 0) && p.d_v % 8 == 0;
}

KeyTile load_keys(const TilePlan& plan, std::int64_t b, std::int64_t kv_head, std::int64_t j0, std::int64_t j1,
                  KeyUse use, const KeyBuffers& buffers) noexcept {
  const AttentionProblem& p = plan.p;
  KeyTile t{};
  t.j0 = j0;
  t.n = static_cast<int>(j1 - j0);
  const auto offset = [&](const ConstView& x) { return b * x.strides[0] + kv_head * x.strides[1] + j0 * x.strides[2]; };
  if (!plan.bf16) {
    t.k = rows_of(p.k, offset(p.k), t.n, p.d_k, use == KeyUse::backward ? round_up(p.d_k, 8) : p.d_k, buffers.k, t.ldk);
    if (use != KeyUse::scores) t.v = rows_of(p.v, offset(p.v), t.n, p.d_v, round_up(p.d_v, 8), buffers.v, t.ldv);
    t.finite = use == KeyUse::backward && keys_finite(t, plan) && values_finite(t, plan);
    return t;
  }
  t.k16 = rows16_of(p.k, offset(p.k), t.n, p.d_k, buffers.k16, t.ldk);
  if (use == KeyUse::scores) return t;
  t.v16 = rows16_of(p.v, offset(p.v), t.n, p.d_v, buffers.v16, t.ldv);
  if (use == KeyUse::forward) {
    plan.table.interleave(t.v16, t.ldv, t.n, p.d_v, buffers.d_v, buffers.v_pairs);
    t.v_pairs = buffers.v_pairs;
  } else if (use == KeyUse::backward) {
    plan.table.interleave(t.k16, t.ldk, t.n, p.d_k, buffers.d_k, buffers.k_pairs);
    t.k_pairs = buffers.k_pairs;
    t.finite = keys_finite(t, plan) && values_finite(t, plan);
  }
  return t;
}

PackedValues::PackedValues(const TilePlan& plan)
    : plan_(plan),
      tiles_(plan.p.kv_len / kKeyTile + 2),
      d_v_(round_up(plan.p.d_v, 16)),
      memory_((plan.p.batch * plan.p.n_kv_head * tiles_ * (kKeyTile * d_v_ * 2 + 1) + 3) / 4),
      pairs_(reinterpret_cast<std::uint16_t*>(memory_.data())),
      finite_(reinterpret_cast<bool*>(pairs_ + plan.p.batch * plan.p.n_kv_head * tiles_ * kKeyTile * d_v_)) {
  const AttentionProblem& p = plan.p;
  parallel_for(p.batch * p.n_kv_head, [&](std::int64_t head) {
    const std::int64_t b = head / p.n_kv_head, kv_head = head % p.n_kv_head;
    Scratch scratch(plan);
    const KeySteps tiles{0, p.sequences[static_cast<std::size_t>(b)].kv_len, p.first_key, kKeyTile};
    for (std::int64_t j = 0; j < tiles.end; j = tiles.next(j)) {
      const std::int64_t at = slot(b, kv_head, j);
      KeyBuffers buffers = scratch.keys;
      buffers.v_pairs = pairs_ + at * kKeyTile * d_v_;
      const KeyTile t = load_keys(plan, b, kv_head, j, tiles.next(j), KeyUse::forward, buffers);
      finite_[at] = values_finite(t, plan);
    }
  });
}

std::int64_t PackedValues::slot(std::int64_t b, std::int64_t kv_head, std::int64_t j0) const noexcept {
  const std::int64_t first = plan_.p.first_key;
  return (b * plan_.p.n_kv_head + kv_head) * tiles_ + (j0 + first) / kKeyTile - first / kKeyTile;
}

void PackedValues::use_packed(KeyTile& tile, std::int64_t b, std::int64_t kv_head) const noexcept {
  const std::int64_t at = slot(b, kv_head, tile.j0);
  tile.v_pairs = pairs_ + at * kKeyTile * d_v_;
  tile.finite = finite_[at];
}

const std::uint16_t* PackedValues::pairs(std::int64_t b, std::int64_t kv_head, std::int64_t j) const noexcept {
  const std::int64_t j0 = std::max<std::int64_t>(0, j - (j + plan_.p.first_key) % kKeyTile);
  return pairs_ + (slot(b, kv_head, j0) * kKeyTile + j - j0) * d_v_;
}

NonFinites take_non_finites_of_values(KeyTile& t, const TilePlan& plan, const KeyBuffers& buffers) {
  if (plan.bf16) {
    const std::int64_t ld = t.v16 == buffers.v16 ? t.ldv : buffers.d_v;  // in place if it is already a copy
    const NonFinites non_finites = take_non_finites(t.v16, t.ldv, t.n, plan.p.d_v, buffers.v16, ld);
    plan.table.interleave(buffers.v16, ld, t.n, plan.p.d_v, buffers.d_v, buffers.v_pairs);
    t.v_pairs = buffers.v_pairs;
    t.v16 = buffers.v16;
    t.ldv = ld;
    return non_finites;
  }
  const std::int64_t ld = round_up(plan.p.d_v, 8);
  const NonFinites non_finites = take_non_finites(t.v, t.ldv, t.n, ld, buffers.v, ld);
  t.v = buffers.v;
  t.ldv = ld;
  return non_finites;
}

NonFinites take_non_finites_of_keys(KeyTile& t, const TilePlan& plan, const KeyBuffers& buffers) {
  if (plan.bf16) {
    const std::int64_t ld = t.k16 == buffers.k16 ? t.ldk : buffers.d_k;
    const NonFinites non_finites = take_non_finites(t.k16, t.ldk, t.n, plan.p.d_k, buffers.k16, ld);
    plan.table.interleave(buffers.k16, ld, t.n, plan.p.d_k, buffers.d_k, buffers.k_pairs);
    t.k_pairs = buffers.k_pairs;
    return non_finites;
  }
  const std::int64_t ld = round_up(plan.p.d_k, 8);
  const NonFinites non_finites = take_non_finites(t.k, t.ldk, t.n, ld, buffers.k, ld);
  t.k = buffers.k;
  t.ldk = ld;
  return non_finites;
}

void prefetch_next(const AttentionProblem& p, const AttentionResults& results, const QueryTile& tile,
                   const PackedValues* packed, Prefetcher& ahead) noexcept {
  ahead.clear();
  if (tile.heads > 1) return;
  const std::int64_t back = num_threads() * tile.queries, key = tile.begin[0] - back;
  const auto rows = [&](const ConstView& x, std::int64_t head, std::int64_t first, std::int64_t d) {
    if (!x || x.strides[3] != 1 || first < 0) return;
    const std::int64_t at = tile.b * x.strides[0] + head * x.strides[1] + first * x.strides[2];
    ahead.add(static_cast<const char*>(x.data) + row_bytes(x.dtype, at), tile.queries, row_bytes(x.dtype, x.strides[2]),
              row_bytes(x.dtype, d));
  };
  rows(results.out, tile.first_head, tile.first_query, p.d_v);
  rows(p.k, tile.kv_head, key, p.d_k);
  if (!packed)
    rows(p.v, tile.kv_head, key, p.d_v);
  else if (key >= 0)
    ahead.add(packed->pairs(tile.b, tile.kv_head, key), 1, 0, tile.queries * packed->row_bytes());
  rows(p.q, tile.first_head, tile.first_query - back, p.d_k);
}

}  // namespace qkv
