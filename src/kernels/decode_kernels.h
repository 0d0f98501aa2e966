// SPDX-License-Identifier: Apache-2.0
// The third table of kernels: products of a few rows with weights that are read once from memory, as decoding does.
// Raw pointers, noexcept, no allocation, no threads; chosen as kernels.h chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

// 32 numbers of a row x as whole numbers of 16 bits: x[i] = scale * (256 * high[i] + low[i]) to 2^-16 of the largest
// one. A row that holds NaN or an infinity has NaN as the scale of that block.
struct RowBlock {
  float scale;
  std::int32_t sum;  // of the whole numbers
  std::int8_t high[32], low[32];
};
inline constexpr std::int64_t kRowBlock = 32;

// Columns of W side by side, 16 a panel, in blocks of 32 along the summed axis. A block of a panel is
//   q8_0   f16 d[16],            u8 [8][16][4]: q + 128 of element 4 g + j in [g][column][j]
//   q4_0   f16 d[16],            u8 [4][16][4]: low nibble element 4 g + j, high nibble element 16 + 4 g + j
//   q4_1   f16 d[16], f16 m[16], as q4_0
// and stands for d * q, d * (q - 8) and d * q + m.
inline constexpr std::int64_t kBlockColumns = 16;
inline constexpr std::int64_t panel_block_bytes(DType type) noexcept {
  return type == DType::q8_0 ? 544 : type == DType::q4_0 ? 288 : 320;
}

struct DecodeKernels {
  std::string_view name;

  // x [size], a multiple of 32 -> blocks [size / 32]. Every set gives the same blocks.
  void (*round_row)(std::int64_t size, const float* x, RowBlock* blocks) noexcept;
  // y[r * ldy + c] = sum over the blocks in order of d * scale * (whole numbers' dot product, exact) for the 16 columns
  // of a panel; x [rows][blocks]. Nothing is fused: every set gives the same bits.
  void (*block_panel)(DType type, std::int64_t rows, std::int64_t blocks, const std::byte* panel, const RowBlock* x,
                      float* y, std::int64_t ldy) noexcept;

  // A panel of 16 * vectors columns (vectors 1 ... 4) in f32, w [k][16 * vectors]; x [rows] rows of k. The sum of an
  // element is made of chunks of `chunk` terms, each a chain of fused multiply-adds from 0 up, added in order. Null
  // without AVX-512.
  void (*f32_panel)(int vectors, std::int64_t rows, std::int64_t k, std::int64_t chunk, const float* w, const float* x,
                    std::int64_t ldx, float* y, std::int64_t ldy) noexcept;
  // The same in bf16, w [k / 2][16 * vectors][2], k and chunk even; a link of the chain is a product of pairs
  // (vdpbf16ps). Null without AVX512_BF16.
  void (*bf16_panel)(int vectors, std::int64_t rows, std::int64_t k, std::int64_t chunk, const std::uint16_t* w,
                     const std::uint16_t* x, std::int64_t ldx, float* y, std::int64_t ldy) noexcept;
  // y = x as the processor's own instruction rounds; goes with bf16_panel.
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
