// SPDX-License-Identifier: Apache-2.0
// The third kernel table: products of a few rows with weights that are read once from memory, as in decode. Raw
// pointers, noexcept, no allocation, no threads; selected as in kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

// 32 numbers of a row x as 16-bit integers: x[i] = scale * (256 * high[i] + low[i]), to within 2^-16 of the largest. A
// block that contains a NaN or an infinity has a NaN scale.
struct RowBlock {
  float scale;
  std::int32_t sum;  // of the integers
  std::int8_t high[32], low[32];
};
inline constexpr std::int64_t kRowBlock = 32;

// Columns of W in panels of 16, in blocks of 32 along the summed axis. A block of a panel is
//   q8_0   f16 d[16],            u8 [8][16][4]: q + 128 of element 4 g + j in [g][column][j]
//   q4_0   f16 d[16],            u8 [4][16][4]: low nibble element 4 g + j, high nibble element 16 + 4 g + j
//   q4_1   f16 d[16], f16 m[16], then as q4_0
// and represents d * q, d * (q - 8) and d * q + m.
inline constexpr std::int64_t kBlockColumns = 16;
inline constexpr std::int64_t panel_block_bytes(DType type) noexcept {
  return type == DType::q8_0 ? 544 : type == DType::q4_0 ? 288 : 320;
}

struct DecodeKernels {
  std::string_view name;

  // x [size], a multiple of 32 -> blocks [size / 32]. All instruction sets give the same blocks.
  void (*round_row)(std::int64_t size, const float* x, RowBlock* blocks) noexcept;
  // y[r * ldy + c] = sum over the blocks in order of d * scale * (exact integer dot product) for the 16 columns of a
  // panel; x [rows][blocks]. Nothing is fused: all instruction sets give the same bits.
  void (*block_panel)(DType type, std::int64_t rows, std::int64_t blocks, const std::byte* panel, const RowBlock* x,
                      float* y, std::int64_t ldy) noexcept;

  // A panel of 16 * vectors columns (vectors 1 ... 4) in f32, w [k][16 * vectors]; x [rows] rows of k. Each element is
  // a sum over chunks of `chunk` terms, added in order; a chunk is a chain of fused multiply-adds that starts at 0.
  // Null without AVX-512.
  void (*f32_panel)(int vectors, std::int64_t rows, std::int64_t k, std::int64_t chunk, const float* w, const float* x,
                    std::int64_t ldx, float* y, std::int64_t ldy) noexcept;
  // The same in bf16, w [k / 2][16 * vectors][2], k and chunk even; each link of the chain is a product of pairs
  // (vdpbf16ps). Null without AVX512_BF16.
  void (*bf16_panel)(int vectors, std::int64_t rows, std::int64_t k, std::int64_t chunk, const std::uint16_t* w,
                     const std::uint16_t* x, std::int64_t ldx, float* y, std::int64_t ldy) noexcept;
  // y = x, rounded as by the processor's conversion instruction; used with bf16_panel.
  void (*round_bf16)(std::int64_t size, const float* x, std::uint16_t* y) noexcept;
};

const DecodeKernels& decode_kernels();

extern const DecodeKernels kPortableDecodeKernels;
#if defined(__x86_64__)
extern const DecodeKernels kAvx2DecodeKernels;
extern const DecodeKernels kAvx512DecodeKernels;
extern const DecodeKernels kAvx512Bf16DecodeKernels;
#endif

}  // namespace qkv
