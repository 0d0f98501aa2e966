// SPDX-License-Identifier: Apache-2.0
// Decode kernels (decode_kernels.h) in plain C++, for any instruction set. In an anonymous namespace, like tile_body.h.
#pragma once

#include <stdint.h>

#include "core/float_types.h"
#include "kernels/decode_kernels.h"

namespace {

using qkv::DType;
using qkv::RowBlock;

constexpr float kLargestWhole = 32512.0f;  // 127 * 256, so that both halves fit in a signed byte

inline float half_number(const std::byte* at) noexcept {
  qkv::f16 half;
  __builtin_memcpy(&half, at, 2);
  return qkv::widen(half);
}

void round_row(int64_t size, const float* x, RowBlock* blocks) noexcept {
  for (int64_t at = 0; at < size; at += 32, ++blocks) {
    float most = 0, nothing = 0;
    for (int i = 0; i < 32; ++i) {
      const float magnitude = __builtin_fabsf(x[at + i]);
      most = magnitude > most ? magnitude : most;
      nothing += x[at + i] * 0.0f;
    }
    const bool finite = nothing == 0.0f, tiny = most < 1e-30f;
    const float inverse = finite && !tiny ? kLargestWhole / most : 0.0f;
    blocks->scale = finite ? (tiny ? 0.0f : most / kLargestWhole) : __builtin_nanf("");
    int32_t whole[32], sum = 0;
    for (int i = 0; i < 32; ++i) {
      constexpr float kMagic = 12582912.0f;  // adding it rounds to an integer
      whole[i] = finite ? static_cast<int32_t>((x[at + i] * inverse + kMagic) - kMagic) : 0;
      sum += whole[i];
    }
    blocks->sum = sum;
    for (int i = 0; i < 32; ++i) {
      const int32_t low = ((whole[i] + 128) & 255) - 128;
      blocks->low[i] = static_cast<int8_t>(low);
      blocks->high[i] = static_cast<int8_t>((whole[i] - low) >> 8);
    }
  }
}

// Exact dot products of one block, 16 columns: q [quants] . integers of x.
inline void block_dots(DType type, const uint8_t* q, const int32_t* whole, int32_t* dots) noexcept {
  for (int c = 0; c < 16; ++c) dots[c] = 0;
  if (type == DType::q8_0) {
    for (int g = 0; g < 8; ++g)
      for (int c = 0; c < 16; ++c)
        for (int j = 0; j < 4; ++j) dots[c] += q[g * 64 + c * 4 + j] * whole[4 * g + j];
    return;
  }
  for (int g = 0; g < 4; ++g)
    for (int c = 0; c < 16; ++c)
      for (int j = 0; j < 4; ++j) {
        const uint8_t both = q[g * 64 + c * 4 + j];
        dots[c] += (both & 15) * whole[4 * g + j] + (both >> 4) * whole[16 + 4 * g + j];
      }
}

[[maybe_unused]] void block_panel(DType type, int64_t rows, int64_t blocks, const std::byte* panel, const RowBlock* x,
                                  float* y, int64_t ldy) noexcept {
  const int offset = type == DType::q8_0 ? 128 : type == DType::q4_0 ? 8 : 0;
  const int64_t bytes = qkv::panel_block_bytes(type), heads = type == DType::q4_1 ? 64 : 32;
  for (int64_t r = 0; r < rows; ++r) {
    float sums[16] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const RowBlock& block = x[r * blocks + b];
      const std::byte* w = panel + b * bytes;
      int32_t whole[32], dots[16];
      for (int i = 0; i < 32; ++i) whole[i] = block.high[i] * 256 + block.low[i];
      block_dots(type, reinterpret_cast<const uint8_t*>(w + heads), whole, dots);
      for (int c = 0; c < 16; ++c) {
        const float d = half_number(w + 2 * c) * block.scale;
        sums[c] = sums[c] + static_cast<float>(dots[c] - offset * block.sum) * d;
      }
      if (type != DType::q4_1) continue;
      const float shift = block.scale * static_cast<float>(block.sum);
      for (int c = 0; c < 16; ++c) sums[c] = sums[c] + half_number(w + 32 + 2 * c) * shift;
    }
    for (int c = 0; c < 16; ++c) y[r * ldy + c] = sums[c];
  }
}

}  // namespace
