// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a packed matrix, for decode: each panel is read once, sequentially, by one thread. The
// order of sums is that of oneDNN, which depends on the sizes; it is found by comparing bits, once per shape. If none
// of the known orders reproduces oneDNN's bits, oneDNN computes small batches too.
#ifndef QKV_PLAIN_GEMM
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/float_types.h"
#include "core/parallel.h"
#include "core/random.h"
#include "kernels/decode_kernels.h"
#include "linalg/packed_product.h"

namespace qkv {
namespace {

constexpr std::int64_t kColumns = 64, kRowsAtOnce = 4;

// Normally distributed x [rows, k] in the compute dtype.
Tensor random_rows(DType operand, std::int64_t rows, std::int64_t k) {
  const Random random(17, 0);
  Tensor x({rows, k}, operand);
  for (std::int64_t i = 0; i < rows * k; ++i) {
    const auto value = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    if (operand == DType::bf16)
      x.data<bf16>()[i] = narrow<bf16>(value);
    else
      x.data<float>()[i] = value;
  }
  return x;
}

}  // namespace

std::int64_t PackedMatrix::small_batch_chunk() const {
  const DecodeKernels& kernel = decode_kernels();
  const bool bf16 = operand_ == DType::bf16;
  if (vectors_ == 0 || (bf16 ? !kernel.bf16_panel || k_ % 2 != 0 : !kernel.f32_panel)) return 0;
  using Key = std::array<std::int64_t, 3>;
  static std::mutex mutex;
  static std::map<Key, std::int64_t> found;
  const std::lock_guard lock(mutex);
  const Key key{bf16, k_, n_};
  if (const auto known = found.find(key); known != found.end()) return known->second;
  const std::int64_t chunk = find_chunk();
  if (chunk >= 0) found.emplace(key, chunk);
  return std::max<std::int64_t>(chunk, 0);
}

// The only order of sums that reproduces oneDNN's bits; 0: none does; -1: not determined by these elements (zero
// matrix).
std::int64_t PackedMatrix::find_chunk() const {
  constexpr std::int64_t kRows = 3;
  const Tensor x = random_rows(operand_, kRows, k_);
  std::vector<float> theirs(static_cast<std::size_t>(kRows * n_)), ours = theirs, alone = theirs;
  library_product(kRows, x.raw(), nullptr, DType::f32, theirs.data());
  for (std::int64_t r = 0; r < kRows; ++r)
    library_product(1, static_cast<const char*>(x.raw()) + static_cast<std::size_t>(r * k_) * dtype_size(operand_),
                    nullptr, DType::f32, alone.data() + r * n_);
  const auto equal = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  if (!equal(theirs, alone)) return 0;
  std::int64_t chunk = 0;
  for (const std::int64_t candidate : {k_, std::int64_t{64}, std::int64_t{128}, std::int64_t{256}, std::int64_t{384},
                                       std::int64_t{512}, std::int64_t{768}, std::int64_t{1024}, std::int64_t{2048}}) {
    if (candidate > k_ || (candidate == k_ && chunk == k_)) continue;
    small_batch_product(candidate, kRows, x.raw(), nullptr, DType::f32, ours.data());
    if (!equal(theirs, ours)) continue;
    if (chunk > 0) return -1;
    chunk = candidate;
  }
  return chunk;
}

void PackedMatrix::small_batch_product(std::int64_t chunk, std::int64_t rows, const void* x, const float* bias,
                                       DType y_dtype, void* y) const {
  const DecodeKernels& kernel = decode_kernels();
  const std::int64_t columns = 16 * vectors_, panels = (n_ + columns - 1) / columns;
  parallel_spans(panels, [&](std::int64_t panel) {
    alignas(64) float sums[kRowsAtOnce * kColumns];  // [kRowsAtOnce, columns]
    for (std::int64_t r = 0; r < rows; r += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, rows - r), first = panel * columns;
      if (operand_ == DType::bf16)
        kernel.bf16_panel(vectors_, count, k_, chunk,
                          static_cast<const std::uint16_t*>(elements_.get()) + panel * panel_size_,
                          static_cast<const std::uint16_t*>(x) + r * k_, k_, sums, kColumns);
      else
        kernel.f32_panel(vectors_, count, k_, chunk, static_cast<const float*>(elements_.get()) + panel * panel_size_,
                         static_cast<const float*>(x) + r * k_, k_, sums, kColumns);
      const std::int64_t width = std::min(columns, n_ - first);
      for (std::int64_t i = 0; i < count; ++i) {
        float* sum = sums + i * kColumns;  // [width]
        for (std::int64_t j = 0; j < width && bias; ++j) sum[j] += bias[first + j];
        const std::int64_t at = (r + i) * n_ + first;
        if (y_dtype == DType::bf16)
          kernel.round_bf16(width, sum, static_cast<std::uint16_t*>(y) + at);
        else
          std::copy_n(sum, width, static_cast<float*>(y) + at);
      }
    }
  });
}

void PackedMatrix::prefetch(Team& team) const noexcept {
  if (vectors_ == 0) return;
  const std::int64_t columns = 16 * vectors_, panels = (n_ + columns - 1) / columns;
  const std::int64_t threads = std::min<std::int64_t>(team.size(), panels);
  const auto panel_bytes = panel_size_ * static_cast<std::int64_t>(dtype_size(operand_));
  for (std::int64_t t = 0; t < threads; ++t) {
    const std::int64_t begin = span_begin(panels, threads, t), end = span_begin(panels, threads, t + 1);
    team.prefetch(static_cast<int>(t), static_cast<const char*>(elements_.get()) + begin * panel_bytes,
                  std::min((end - begin) * panel_bytes, Team::kMaxPrefetchBytes));
  }
}

}  // namespace qkv
#endif
