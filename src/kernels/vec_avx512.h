// SPDX-License-Identifier: Apache-2.0
// The small vector type of tile_body.h for AVX-512 (F, VL, DQ, BW): Vec<16>, Vec<8> and Vec<4> give the same bits.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace {

#define QKV_INLINE static inline __attribute__((always_inline))

template <int N>
struct Vec;

QKV_INLINE __m256i load_half16(const uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
QKV_INLINE __m128i load_half8(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
QKV_INLINE __m128i load_half4(const uint16_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }

#define QKV_AVX512_VEC(N, PREFIX, REG, MASK, AS_FLOATS, HALF_LOAD)                                      \
  template <>                                                                                           \
  struct Vec<N> {                                                                                       \
    static constexpr int lanes = N;                                                                     \
    static constexpr int keys_at_once = 8;                                                              \
    static constexpr int outer_keys = 4;                                                                \
    using Mask = MASK;                                                                                  \
    REG r;                                                                                              \
    QKV_INLINE Vec load(const float* p) { return {PREFIX##_loadu_ps(p)}; }                              \
    QKV_INLINE void store(float* p, Vec a) { PREFIX##_storeu_ps(p, a.r); }                              \
    QKV_INLINE Vec set1(float x) { return {PREFIX##_set1_ps(x)}; }                                      \
    QKV_INLINE Vec zero() { return {PREFIX##_setzero_ps()}; }                                           \
    QKV_INLINE Vec add(Vec a, Vec b) { return {PREFIX##_add_ps(a.r, b.r)}; }                            \
    QKV_INLINE Vec sub(Vec a, Vec b) { return {PREFIX##_sub_ps(a.r, b.r)}; }                            \
    QKV_INLINE Vec mul(Vec a, Vec b) { return {PREFIX##_mul_ps(a.r, b.r)}; }                            \
    QKV_INLINE Vec div(Vec a, Vec b) { return {PREFIX##_div_ps(a.r, b.r)}; }                            \
    QKV_INLINE Vec fma(Vec a, Vec b, Vec c) { return {PREFIX##_fmadd_ps(a.r, b.r, c.r)}; }              \
    /* The second operand where either is NaN. */                                                       \
    QKV_INLINE Vec max(Vec a, Vec b) { return {PREFIX##_max_ps(a.r, b.r)}; }                            \
    QKV_INLINE Vec abs(Vec a) { return {PREFIX##_andnot_ps(PREFIX##_set1_ps(-0.0f), a.r)}; }            \
    QKV_INLINE Mask eq(Vec a, Vec b) { return PREFIX##_cmp_ps_mask(a.r, b.r, _CMP_EQ_OQ); }             \
    QKV_INLINE Mask gt(Vec a, Vec b) { return PREFIX##_cmp_ps_mask(a.r, b.r, _CMP_GT_OQ); }             \
    QKV_INLINE Mask ge(Vec a, Vec b) { return PREFIX##_cmp_ps_mask(a.r, b.r, _CMP_GE_OQ); }             \
    QKV_INLINE Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }                           \
    QKV_INLINE uint64_t bits(Mask m) { return m & ((1u << (N - 1)) * 2u - 1u); }                        \
    QKV_INLINE bool any(Mask m) { return bits(m) != 0; }                                                \
    QKV_INLINE Vec select(Mask m, Vec yes, Vec no) { return {PREFIX##_mask_blend_ps(m, no.r, yes.r)}; } \
    /* 2^x; relative error 1e-7; 0 for -inf, NaN for NaN, 1 for 0. */                                   \
    QKV_INLINE Vec exp2(Vec x) {                                                                        \
      const Vec f = fraction(x);                                                                        \
      return scale_by_power(exp2_fraction(f), sub(x, f));                                               \
    }                                                                                                   \
    /* x - the nearest integer; 0 for -inf. */                                                          \
    QKV_INLINE Vec fraction(Vec x) { return {PREFIX##_reduce_ps(x.r, 8)}; }                             \
    /* x - floor(x), up to 1; 0 for -inf. */                                                            \
    QKV_INLINE Vec above_floor(Vec x) { return {PREFIX##_reduce_ps(x.r, 9)}; }                          \
    /* a * 2^floor(n), -inf included. */                                                                \
    QKV_INLINE Vec scale_by_power(Vec a, Vec n) { return {PREFIX##_scalef_ps(a.r, n.r)}; }              \
    QKV_INLINE Vec exp2_fraction(Vec f);                                                                \
    QKV_INLINE Vec from_bf16(const uint16_t* p) {                                                       \
      return {AS_FLOATS(PREFIX##_slli_epi32(PREFIX##_cvtepu16_epi32(HALF_LOAD(p)), 16))};               \
    }                                                                                                   \
    QKV_INLINE Vec from_f16(const uint16_t* p) { return {PREFIX##_cvtph_ps(HALF_LOAD(p))}; }            \
  };

QKV_AVX512_VEC(16, _mm512, __m512, __mmask16, _mm512_castsi512_ps, load_half16)
QKV_AVX512_VEC(8, _mm256, __m256, __mmask8, _mm256_castsi256_ps, load_half8)
QKV_AVX512_VEC(4, _mm, __m128, __mmask8, _mm_castsi128_ps, load_half4)
#undef QKV_AVX512_VEC

}  // namespace
