// SPDX-License-Identifier: Apache-2.0
// The dropout kernels of row_kernels.h; included by row_body.h. The random numbers are those of core/dropout.h.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

using qkv::DropoutColumns;
using qkv::DropoutKey;

// A vector of 64-bit lanes. Philox multiplies 32 by 32 bits to 64, so each lane holds one word in its low half; the
// high half is ignored.
#if defined(__AVX512F__)
typedef uint64_t Words __attribute__((vector_size(64)));
QKV_ROW Words multiply_low(Words a, Words b) { return (Words)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
typedef uint64_t Words __attribute__((vector_size(32)));
QKV_ROW Words multiply_low(Words a, Words b) { return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#elif defined(__SSE2__)
typedef uint64_t Words __attribute__((vector_size(16)));
QKV_ROW Words multiply_low(Words a, Words b) { return (Words)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
typedef uint64_t Words __attribute__((vector_size(16)));
QKV_ROW Words multiply_low(Words a, Words b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif
constexpr int kWordLanes = static_cast<int>(sizeof(Words) / 8);
constexpr int kBlocks = 2 * kWordLanes;  // generated at once

struct PhiloxWords {
  Words w0, w1, w2, w3;
};

// Philox 4x32-10 as in core/random.h: counter words to the block.
QKV_ROW PhiloxWords philox(PhiloxWords c, uint32_t k0, uint32_t k1) {
  const Words zero = {}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
  for (int round = 0; round < 10; ++round) {
    const Words p0 = multiply_low(c.w0, m0), p1 = multiply_low(c.w2, m1);
    c = {(p1 >> 32) ^ c.w1 ^ (zero + k0), p1, (p0 >> 32) ^ c.w3 ^ (zero + k1), p0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

QKV_ROW void store_words(uint32_t* to, Words even, Words odd) {
  const Words both = (even & 0xffffffffu) | (odd << 32);
  __builtin_memcpy(to, &both, sizeof both);
}

// Block i of kBlocks for the counter (c0[i], c1, c2[i], c3): its word w goes to words[w * stride + i].
QKV_ROW void blocks(const uint32_t* c0, uint32_t c1, const uint32_t* c2, uint32_t c3, uint64_t seed, uint32_t* words,
                    int stride) {
  const uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  Words first, third;
  __builtin_memcpy(&first, c0, sizeof first);
  __builtin_memcpy(&third, c2, sizeof third);
  const Words zero = {};
  // Blocks 0, 2, 4 ... in the low halves, then 1, 3, 5 ... (swapped twice on big-endian).
  const PhiloxWords even = philox({first, zero + c1, third, zero + c3}, k0, k1);
  const PhiloxWords odd = philox({first >> 32, zero + c1, third >> 32, zero + c3}, k0, k1);
  store_words(words, even.w0, odd.w0);
  store_words(words + stride, even.w1, odd.w1);
  store_words(words + 2 * stride, even.w2, odd.w2);
  store_words(words + 3 * stride, even.w3, odd.w3);
}

constexpr int kDropoutGroup = 4 * kLanes;  // elements of 16 blocks

// words[i]: the random number of element group * 64 + i.
QKV_ROW void group_words(uint64_t seed, uint64_t group, uint32_t* words) {
  const uint64_t block = group * kLanes;
  uint32_t first[kLanes], third[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) first[lane] = static_cast<uint32_t>(block) + static_cast<uint32_t>(lane);
  for (int lane = 0; lane < kLanes; lane += kBlocks)
    blocks(first + lane, static_cast<uint32_t>(block >> 32), third + lane, 0, seed, words + lane, kLanes);
}

template <class S>
void dropout(const DropoutKey& key, uint64_t first, int64_t size, const float* x, S* y) noexcept {
  const uint32_t threshold = key.threshold;
  const float scale = key.scale;
  uint32_t words[kDropoutGroup];
  for (int64_t done = 0; done < size;) {
    const uint64_t at = first + static_cast<uint64_t>(done);
    const int64_t skip = static_cast<int64_t>(at % kDropoutGroup), left = size - done;
    const int64_t count = kDropoutGroup - skip < left ? kDropoutGroup - skip : left;
    group_words(key.seed, at / kDropoutGroup, words);
    const float* from = x + done;         // [count]
    const uint32_t* word = words + skip;  // [count]
    S* to = y + done;                     // [count]
    each(count, [=](int64_t i) {
      const float scaled = from[i] * scale;
      put(to[i], word[i] < threshold ? 0.0f : scaled);
    });
    done += count;
  }
}

// drop(row, words [last]) for each row of keys [0, n), where words[i] is the random number of column i and that key.
template <class Drop>
QKV_ROW void each_row_of_pairs(uint64_t seed, const DropoutColumns& columns, uint32_t key, int n, int first, int last,
                               const Drop& drop) {
  uint32_t words[4 * DropoutColumns::kCapacity];
  for (int row = -static_cast<int>(key % 4); row < n; row += 4) {
    const uint32_t group = (key + static_cast<uint32_t>(row)) / 4;
    for (int i = first; i < last; i += kBlocks)
      blocks(columns.query + i, group, columns.plane + i, 1, seed, words + i, DropoutColumns::kCapacity);
    for (int w = row < 0 ? -row : 0; w < 4 && row + w < n; ++w) drop(row + w, words + w * DropoutColumns::kCapacity);
  }
}

void drop_pairs(const DropoutKey& key, const DropoutColumns& columns, uint32_t first_key, int n, int first, int last,
                int width, float scale, float* s) noexcept {
  const uint32_t threshold = key.threshold;
  each_row_of_pairs(key.seed, columns, first_key, n, first, last, [=](int row, const uint32_t* words) {
    float* si = s + int64_t{row} * width;  // [width]
#pragma omp simd
    for (int i = first; i < last; ++i) si[i] *= words[i] < threshold ? 0.0f : scale;
  });
}

typedef uint32_t __attribute__((may_alias)) PairBits;

void drop_bf16_pairs(const DropoutKey& key, const DropoutColumns& columns, uint32_t first_key, int n, int first,
                     int last, int width, uint16_t* pairs) noexcept {
  const uint32_t threshold = key.threshold;
  each_row_of_pairs(key.seed, columns, first_key, n, first, last, [=](int row, const uint32_t* words) {
    PairBits* si = reinterpret_cast<PairBits*>(pairs) + int64_t{row / 2} * width;  // [width]
    const uint32_t other = row % 2 ? 0xffffu : 0xffff0000u;                        // the other row's half
#pragma omp simd
    for (int i = first; i < last; ++i) si[i] &= words[i] < threshold ? other : ~0u;
  });
}

}  // namespace
