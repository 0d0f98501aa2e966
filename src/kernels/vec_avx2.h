// SPDX-License-Identifier: Apache-2.0
// The small vector type of tile_body.h for AVX2 with FMA and F16C: Vec<8> and Vec<4> give the same bits.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace {

#define QKV_INLINE static inline __attribute__((always_inline))

template <int N>
struct Vec;

QKV_INLINE __m128i load_half8(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
QKV_INLINE __m128i load_half4(const uint16_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }

#define QKV_AVX2_VEC(N, PREFIX, SI, HALF_LOAD)                                                                 \
  template <>                                                                                                  \
  struct Vec<N> {                                                                                              \
    static constexpr int lanes = N;                                                                            \
    static constexpr int keys_at_once = 4;                                                                     \
    static constexpr int outer_keys = 2;                                                                       \
    using Reg = decltype(PREFIX##_setzero_ps());                                                               \
    using Mask = Reg;                                                                                          \
    Reg r;                                                                                                     \
    QKV_INLINE Vec load(const float* p) { return {PREFIX##_loadu_ps(p)}; }                                     \
    QKV_INLINE void store(float* p, Vec a) { PREFIX##_storeu_ps(p, a.r); }                                     \
    QKV_INLINE Vec set1(float x) { return {PREFIX##_set1_ps(x)}; }                                             \
    QKV_INLINE Vec zero() { return {PREFIX##_setzero_ps()}; }                                                  \
    QKV_INLINE Vec add(Vec a, Vec b) { return {PREFIX##_add_ps(a.r, b.r)}; }                                   \
    QKV_INLINE Vec sub(Vec a, Vec b) { return {PREFIX##_sub_ps(a.r, b.r)}; }                                   \
    QKV_INLINE Vec mul(Vec a, Vec b) { return {PREFIX##_mul_ps(a.r, b.r)}; }                                   \
    QKV_INLINE Vec div(Vec a, Vec b) { return {PREFIX##_div_ps(a.r, b.r)}; }                                   \
    QKV_INLINE Vec fma(Vec a, Vec b, Vec c) { return {PREFIX##_fmadd_ps(a.r, b.r, c.r)}; }                     \
    /* The second operand where either is NaN. */                                                              \
    QKV_INLINE Vec max(Vec a, Vec b) { return {PREFIX##_max_ps(a.r, b.r)}; }                                   \
    QKV_INLINE Vec abs(Vec a) { return {PREFIX##_andnot_ps(PREFIX##_set1_ps(-0.0f), a.r)}; }                   \
    QKV_INLINE Mask eq(Vec a, Vec b) { return PREFIX##_cmp_ps(a.r, b.r, _CMP_EQ_OQ); }                         \
    QKV_INLINE Mask gt(Vec a, Vec b) { return PREFIX##_cmp_ps(a.r, b.r, _CMP_GT_OQ); }                         \
    QKV_INLINE Mask ge(Vec a, Vec b) { return PREFIX##_cmp_ps(a.r, b.r, _CMP_GE_OQ); }                         \
    QKV_INLINE Mask both(Mask a, Mask b) { return PREFIX##_and_ps(a, b); }                                     \
    QKV_INLINE uint64_t bits(Mask m) { return static_cast<uint64_t>(PREFIX##_movemask_ps(m)); }                \
    QKV_INLINE bool any(Mask m) { return bits(m) != 0; }                                                       \
    QKV_INLINE Vec select(Mask m, Vec yes, Vec no) { return {PREFIX##_blendv_ps(no.r, yes.r, m)}; }            \
    /* 2^x; relative error 1e-7; 0 for -inf, NaN for NaN, 1 for 0. The power is applied in two halves, so that \
       neither overflows where the result does not. */                                                         \
    QKV_INLINE Vec exp2(Vec x) {                                                                               \
      const Vec y = {PREFIX##_min_ps(PREFIX##_set1_ps(200.0f), max(set1(-200.0f), x).r)};                      \
      const Vec n = {PREFIX##_round_ps(y.r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};                   \
      const auto whole = PREFIX##_cvtps_epi32(n.r);                                                            \
      const auto half = PREFIX##_srai_epi32(whole, 1);                                                         \
      const auto bias = PREFIX##_set1_epi32(127);                                                              \
      const auto a = PREFIX##_slli_epi32(PREFIX##_add_epi32(half, bias), 23);                                  \
      const auto b = PREFIX##_slli_epi32(PREFIX##_add_epi32(PREFIX##_sub_epi32(whole, half), bias), 23);       \
      const Vec p = exp2_fraction(sub(y, n));                                                                  \
      return mul(mul(p, {PREFIX##_cast##SI##_ps(a)}), {PREFIX##_cast##SI##_ps(b)});                            \
    }                                                                                                          \
    QKV_INLINE Vec exp2_fraction(Vec f);                                                                       \
    QKV_INLINE Vec from_bf16(const uint16_t* p) {                                                              \
      return {PREFIX##_cast##SI##_ps(PREFIX##_slli_epi32(PREFIX##_cvtepu16_epi32(HALF_LOAD(p)), 16))};         \
    }                                                                                                          \
    QKV_INLINE Vec from_f16(const uint16_t* p) { return {PREFIX##_cvtph_ps(HALF_LOAD(p))}; }                   \
  };
QKV_AVX2_VEC(8, _mm256, si256, load_half8)
QKV_AVX2_VEC(4, _mm, si128, load_half4)
#undef QKV_AVX2_VEC

}  // namespace
