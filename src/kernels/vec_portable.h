// SPDX-License-Identifier: Apache-2.0
// The small vector type of tile_body.h in plain C++ with the compiler's vector extension: Vec<4>, for any processor.
// Multiply-adds are not fused.
#pragma once

#include <stdint.h>

#include "core/float_types.h"

namespace {

#define QKV_INLINE static inline __attribute__((always_inline))

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

template <int N>
struct Vec;

template <>
struct Vec<4> {
  static constexpr int lanes = 4;
  static constexpr int keys_at_once = 4;  // rows of a block of accumulators
  static constexpr int outer_keys = 2;
  using Mask = Int4;  // all bits of a lane set or none
  Float4 r;

  QKV_INLINE Vec load(const float* p) {
    Vec x;
    __builtin_memcpy(&x.r, p, 16);
    return x;
  }
  QKV_INLINE void store(float* p, Vec a) { __builtin_memcpy(p, &a.r, 16); }
  QKV_INLINE Vec set1(float x) { return {Float4{x, x, x, x}}; }
  QKV_INLINE Vec zero() { return set1(0); }
  QKV_INLINE Vec add(Vec a, Vec b) { return {a.r + b.r}; }
  QKV_INLINE Vec sub(Vec a, Vec b) { return {a.r - b.r}; }
  QKV_INLINE Vec mul(Vec a, Vec b) { return {a.r * b.r}; }
  QKV_INLINE Vec div(Vec a, Vec b) { return {a.r / b.r}; }
  QKV_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.r * b.r + c.r}; }
  // The second argument if either is NaN.
  QKV_INLINE Vec max(Vec a, Vec b) { return select(gt(a, b), a, b); }
  QKV_INLINE Vec abs(Vec a) {
    const Int4 clear = (Int4)a.r & 0x7fffffff;
    return {(Float4)clear};
  }
  QKV_INLINE Mask eq(Vec a, Vec b) { return a.r == b.r; }
  QKV_INLINE Mask gt(Vec a, Vec b) { return a.r > b.r; }
  QKV_INLINE Mask ge(Vec a, Vec b) { return a.r >= b.r; }
  QKV_INLINE Mask both(Mask a, Mask b) { return a & b; }
  QKV_INLINE uint64_t bits(Mask m) { return static_cast<uint64_t>((m[0] & 1) | (m[1] & 2) | (m[2] & 4) | (m[3] & 8)); }
  QKV_INLINE bool any(Mask m) { return bits(m) != 0; }
  QKV_INLINE Vec select(Mask m, Vec yes, Vec no) {
    const Int4 chosen = (m & (Int4)yes.r) | (~m & (Int4)no.r);
    return {(Float4)chosen};
  }
  // 2^x; relative error 2e-7; 0 for -inf, NaN for NaN, 1 for 0. The power is applied in two halves, so that neither
  // overflows unless the result does.
  QKV_INLINE Vec exp2(Vec x) {
    const Vec low = max(set1(-200.0f), x);
    const Vec y = select(gt(low, set1(200.0f)), set1(200.0f), low);
    const Float4 magic = {12582912.0f, 12582912.0f, 12582912.0f, 12582912.0f};  // adding it rounds to an integer
    const Vec n = {(y.r + magic) - magic};
    const Mask number = y.r == y.r;
    const Int4 whole = __builtin_convertvector(select(number, n, zero()).r, Int4);
    const Int4 half = whole >> 1;
    const Int4 a = (half + 127) << 23, b = (whole - half + 127) << 23;
    const Vec p = exp2_fraction(sub(y, n));
    return {p.r * (Float4)a * (Float4)b};
  }
  QKV_INLINE Vec exp2_fraction(Vec f);
  QKV_INLINE Vec from_bf16(const uint16_t* p) {
    return {Float4{qkv::widen(qkv::bf16{p[0]}), qkv::widen(qkv::bf16{p[1]}), qkv::widen(qkv::bf16{p[2]}),
                   qkv::widen(qkv::bf16{p[3]})}};
  }
  QKV_INLINE Vec from_f16(const uint16_t* p) {
    return {Float4{qkv::widen(qkv::f16{p[0]}), qkv::widen(qkv::f16{p[1]}), qkv::widen(qkv::f16{p[2]}),
                   qkv::widen(qkv::f16{p[3]})}};
  }
};

// Transposes a square of lanes x lanes.
QKV_INLINE void transpose(Vec<4> (&x)[4]) {
  const Vec<4> t[4] = {x[0], x[1], x[2], x[3]};
  for (int i = 0; i < 4; ++i) x[i].r = Float4{t[0].r[i], t[1].r[i], t[2].r[i], t[3].r[i]};
}

}  // namespace
