// SPDX-License-Identifier: Apache-2.0
// Transposes of squares of f32, for the x86 vector types. Included after one of vec_avx2.h, vec_avx512.h.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace {

QKV_INLINE void transpose(Vec<4> (&x)[4]) {
  const __m128 a = _mm_unpacklo_ps(x[0].r, x[1].r), b = _mm_unpackhi_ps(x[0].r, x[1].r);
  const __m128 c = _mm_unpacklo_ps(x[2].r, x[3].r), d = _mm_unpackhi_ps(x[2].r, x[3].r);
  x[0].r = _mm_movelh_ps(a, c);
  x[1].r = _mm_movehl_ps(c, a);
  x[2].r = _mm_movelh_ps(b, d);
  x[3].r = _mm_movehl_ps(d, b);
}

QKV_INLINE void transpose(Vec<8> (&x)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(x[i].r, x[i + 1].r);
    t[i + 1] = _mm256_unpackhi_ps(x[i].r, x[i + 1].r);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    x[i].r = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    x[i + 4].r = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

// t[c] = item c of 8 rows, `stride` bytes apart. Halves of rows are paired as they are loaded, which leaves two thirds
// of the shuffles that `transpose` needs.
QKV_INLINE void load_transposed(const char* x, int64_t stride, Vec<8> (&t)[8]) {
  const auto half = [&](int row, int part) __attribute__((always_inline)) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(x + row * stride) + 4 * part);
  };
#pragma GCC unroll 2
  for (int part = 0; part < 2; ++part) {
    __m256 rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      rows[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(half(i, part)), half(i + 4, part), 1);
    const __m256 a = _mm256_unpacklo_ps(rows[0], rows[1]), b = _mm256_unpackhi_ps(rows[0], rows[1]);
    const __m256 c = _mm256_unpacklo_ps(rows[2], rows[3]), d = _mm256_unpackhi_ps(rows[2], rows[3]);
    t[4 * part].r = _mm256_shuffle_ps(a, c, 0x44);
    t[4 * part + 1].r = _mm256_shuffle_ps(a, c, 0xee);
    t[4 * part + 2].r = _mm256_shuffle_ps(b, d, 0x44);
    t[4 * part + 3].r = _mm256_shuffle_ps(b, d, 0xee);
  }
}

#ifdef __AVX512F__
QKV_INLINE void transpose(Vec<16> (&x)[16]) {
  __m512 t[16], u[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(x[i].r, x[i + 1].r);
    t[i + 1] = _mm512_unpackhi_ps(x[i].r, x[i + 1].r);
  }
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), b = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88),
                 d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    x[i].r = _mm512_shuffle_f32x4(a, c, 0x88);
    x[i + 8].r = _mm512_shuffle_f32x4(a, c, 0xdd);
    x[i + 4].r = _mm512_shuffle_f32x4(b, d, 0x88);
    x[i + 12].r = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}
#endif

}  // namespace
