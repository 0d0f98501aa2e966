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
