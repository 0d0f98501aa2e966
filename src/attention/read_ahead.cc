// SPDX-License-Identifier: Apache-2.0
#include "attention/read_ahead.h"

#include "attention/key_tile.h"
#include "attention/query_tile.h"
#include "core/parallel.h"

namespace qkv {

void ReadAhead::add(const void* first, std::int64_t rows, std::int64_t stride, std::int64_t bytes) noexcept {
  if (rows > 0 && bytes > 0) parts_[count_++] = {static_cast<const char*>(first), rows, stride, bytes};
}

void ReadAhead::step() noexcept {
  constexpr std::int64_t kLine = 64, kLines = 32;
  for (std::int64_t line = 0; line < kLines && part_ < count_; ++line) {
    const Part& p = parts_[part_];
    __builtin_prefetch(p.first + row_ * p.stride + byte_, 0, 2);
    if ((byte_ += kLine) < p.bytes) continue;
    byte_ = 0;
    if (++row_ < p.rows) continue;
    row_ = 0, ++part_;
  }
}

void look_ahead(const AttentionProblem& p, const AttentionResults& results, const QueryTile& tile,
                const PackedValues* packed, ReadAhead& ahead) noexcept {
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
