// SPDX-License-Identifier: Apache-2.0
#include "linalg/tile.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "os/cpu_level.h"

namespace qkv {
namespace {

constexpr std::int64_t kPanelsPerTask = 8;  // row panels that read one column panel while it is cached

std::int64_t panels(std::int64_t size, std::int64_t width) { return (size + width - 1) / width; }

// src(p, i) for p in [0, k) and i in [0, count) -> panel [k, width], padded with 0
template <class Source>
void pack_panel(std::int64_t k, std::int64_t count, std::int64_t width, const Source& src, float* panel) {
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t i = 0; i < width; ++i) panel[p * width + i] = i < count ? src(p, i) : 0.0f;
}

}  // namespace

void tile_portable(std::int64_t k, const float* a, const float* b, float* c) noexcept {
  float sums[kTileRows * kTileColumns] = {};  // [kTileRows, kTileColumns]
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t i = 0; i < kTileRows; ++i)
      for (std::int64_t j = 0; j < kTileColumns; ++j)
        sums[i * kTileColumns + j] += a[p * kTileRows + i] * b[p * kTileColumns + j];
  std::copy(std::begin(sums), std::end(sums), c);
}

Tile best_tile() {
#if defined(__x86_64__)
  if (cpu_has(CpuLevel::avx2)) return tile_avx2;
#endif
  return tile_portable;
}

void tiled_gemm(Tile tile, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;  // a and b are not read
  const std::int64_t row_panels = panels(m, kTileRows), column_panels = panels(n, kTileColumns);
  std::vector<float> packed_b(static_cast<std::size_t>(column_panels * k * kTileColumns));  // [column_panels, k, 16]
  parallel_for(column_panels, [&](std::int64_t q) {
    const std::int64_t j = q * kTileColumns;
    pack_panel(
        k, std::min(kTileColumns, n - j), kTileColumns,
        [=](std::int64_t p, std::int64_t i) { return trans_b ? b[(j + i) * ldb + p] : b[p * ldb + j + i]; },
        packed_b.data() + q * k * kTileColumns);
  });
  parallel_ranges(row_panels, kPanelsPerTask, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> packed_a(static_cast<std::size_t>((last - first) * k * kTileRows));  // [last - first, k, 6]
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t i0 = r * kTileRows;
      pack_panel(
          k, std::min(kTileRows, m - i0), kTileRows,
          [=](std::int64_t p, std::int64_t i) { return trans_a ? a[p * lda + i0 + i] : a[(i0 + i) * lda + p]; },
          packed_a.data() + (r - first) * k * kTileRows);
    }
    float sums[kTileRows * kTileColumns];  // [kTileRows, kTileColumns]
    for (std::int64_t q = 0; q < column_panels; ++q)
      for (std::int64_t r = first; r < last; ++r) {
        tile(k, packed_a.data() + (r - first) * k * kTileRows, packed_b.data() + q * k * kTileColumns, sums);
        const std::int64_t rows = std::min(kTileRows, m - r * kTileRows);
        const std::int64_t columns = std::min(kTileColumns, n - q * kTileColumns);
        for (std::int64_t i = 0; i < rows; ++i) {
          float* row = c + (r * kTileRows + i) * ldc + q * kTileColumns;  // [columns]
          const float* sum = sums + i * kTileColumns;                     // [columns]
          for (std::int64_t j = 0; j < columns; ++j) row[j] = beta == 0.0f ? sum[j] : beta * row[j] + sum[j];
        }
      }
  });
}

}  // namespace qkv
