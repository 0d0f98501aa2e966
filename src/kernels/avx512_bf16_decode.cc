// SPDX-License-Identifier: Apache-2.0
// Products of bf16 pairs, and of bytes (VNNI, which every processor with AVX512_BF16 supports).
#include "kernels/decode_body_avx512.h"

namespace {

// --- bf16

struct Pairs {
  using Element = uint16_t;
  using Columns = __m512bh;
  static constexpr int step = 2;
  static Columns load(const uint16_t* w) noexcept { return (__m512bh)_mm512_loadu_si512(w); }
  static Columns spread(const uint16_t* x) noexcept {
    int32_t pair;
    __builtin_memcpy(&pair, x, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  static __m512 multiply_add(Columns x, Columns w, __m512 sum) noexcept { return _mm512_dpbf16_ps(sum, x, w); }
};

void round_bf16(int64_t size, const float* x, uint16_t* y) noexcept {
  for (int64_t i = 0; i < size; i += 16) {
    const int64_t left = size - i;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm256_mask_storeu_epi16(y + i, mask, (__m256i)rounded);
  }
}

// --- blocks

inline __attribute__((always_inline)) __m512i four(const int8_t* at) noexcept {
  int32_t bytes;
  __builtin_memcpy(&bytes, at, 4);
  return _mm512_set1_epi32(bytes);
}

// With several rows, computation takes long enough that the hardware prefetcher stops: prefetches the next bytes.
template <int R>
inline __attribute__((always_inline)) void prefetch_ahead(const std::byte* at) noexcept {
  constexpr int64_t kAhead = 4096;
  if constexpr (R > 1) _mm_prefetch(reinterpret_cast<const char*>(at + kAhead), _MM_HINT_T0);
}

template <DType kType, int R>
inline void block_rows(int64_t blocks, const std::byte* panel, const RowBlock* x, float* y, int64_t ldy) noexcept {
  constexpr int64_t kBytes = qkv::panel_block_bytes(kType), kHeads = kType == DType::q4_1 ? 64 : 32;
  constexpr int kOffset = kType == DType::q8_0 ? 128 : kType == DType::q4_0 ? 8 : 0;
  __m512 sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, panel += kBytes) {
    __m512i high[R], low[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) high[r] = low[r] = _mm512_setzero_si512();
    const auto add = [&](__m512i w, int element) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        high[r] = _mm512_dpbusd_epi32(high[r], w, four(x[r * blocks + b].high + element));
        low[r] = _mm512_dpbusd_epi32(low[r], w, four(x[r * blocks + b].low + element));
      }
    };
    if constexpr (kType == DType::q8_0) {
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        prefetch_ahead<R>(panel + kHeads + 64 * g);
        add(_mm512_loadu_si512(panel + kHeads + 64 * g), 4 * g);
      }
    } else {
      const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        prefetch_ahead<R>(panel + kHeads + 64 * g);
        const __m512i both = _mm512_loadu_si512(panel + kHeads + 64 * g);
        add(_mm512_and_si512(both, mask), 4 * g);
        add(_mm512_and_si512(_mm512_srli_epi16(both, 4), mask), 16 + 4 * g);
      }
    }
    const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel)));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const RowBlock& block = x[r * blocks + b];
      __m512i dots = _mm512_add_epi32(_mm512_slli_epi32(high[r], 8), low[r]);
      if constexpr (kOffset != 0) dots = _mm512_sub_epi32(dots, _mm512_set1_epi32(kOffset * block.sum));
      const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(block.scale));
      sums[r] = _mm512_add_ps(sums[r], _mm512_mul_ps(_mm512_cvtepi32_ps(dots), scale));
      if constexpr (kType == DType::q4_1) {
        const __m512 m = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + 32)));
        const __m512 shift = _mm512_set1_ps(block.scale * static_cast<float>(block.sum));
        sums[r] = _mm512_add_ps(sums[r], _mm512_mul_ps(m, shift));
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(y + r * ldy, sums[r]);
}

template <DType kType>
void block_panel_of(int64_t rows, int64_t blocks, const std::byte* panel, const RowBlock* x, float* y,
                    int64_t ldy) noexcept {
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) block_rows<kType, 8>(blocks, panel, x + r * blocks, y + r * ldy, ldy);
  for (; r + 6 <= rows; r += 6) block_rows<kType, 6>(blocks, panel, x + r * blocks, y + r * ldy, ldy);
  for (; r + 4 <= rows; r += 4) block_rows<kType, 4>(blocks, panel, x + r * blocks, y + r * ldy, ldy);
  for (; r + 3 <= rows; r += 3) block_rows<kType, 3>(blocks, panel, x + r * blocks, y + r * ldy, ldy);
  for (; r + 2 <= rows; r += 2) block_rows<kType, 2>(blocks, panel, x + r * blocks, y + r * ldy, ldy);
  for (; r < rows; ++r) block_rows<kType, 1>(blocks, panel, x + r * blocks, y + r * ldy, ldy);
}

void byte_panel(DType type, int64_t rows, int64_t blocks, const std::byte* panel, const RowBlock* x, float* y,
                int64_t ldy) noexcept {
  switch (type) {
    case DType::q8_0:
      return block_panel_of<DType::q8_0>(rows, blocks, panel, x, y, ldy);
    case DType::q4_0:
      return block_panel_of<DType::q4_0>(rows, blocks, panel, x, y, ldy);
    case DType::q4_1:
      return block_panel_of<DType::q4_1>(rows, blocks, panel, x, y, ldy);
    default:
      return;  // other types have no panels
  }
}

}  // namespace

namespace qkv {
const DecodeKernels kAvx512Bf16DecodeKernels = {.name = "avx512_bf16",
                                                .round_row = wide_round_row,
                                                .block_panel = byte_panel,
                                                .f32_panel = panel<Singles>,
                                                .bf16_panel = panel<Pairs>,
                                                .round_bf16 = round_bf16};
}  // namespace qkv
