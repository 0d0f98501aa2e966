// SPDX-License-Identifier: Apache-2.0
// The dropout kernels of row_kernels.h; included by row_body.h. The numbers are those of core/dropout.h.
#pragma once

namespace {

using qkv::DropoutColumns;
using qkv::DropoutKey;

struct PhiloxBlock {
  uint32_t w0, w1, w2, w3;
};

// Philox 4x32 as core/random.h has it: counter words to the block. Rounds as templates, so that loops around vectorise.
template <int rounds>
QKV_ROW PhiloxBlock philox(PhiloxBlock c, uint32_t k0, uint32_t k1) {
  const uint64_t p0 = uint64_t{0xD2511F53u} * c.w0, p1 = uint64_t{0xCD9E8D57u} * c.w2;
  const PhiloxBlock next = {static_cast<uint32_t>(p1 >> 32) ^ c.w1 ^ k0, static_cast<uint32_t>(p1),
                            static_cast<uint32_t>(p0 >> 32) ^ c.w3 ^ k1, static_cast<uint32_t>(p0)};
  if constexpr (rounds == 1)
    return next;
  else
    return philox<rounds - 1>(next, k0 + 0x9E3779B9u, k1 + 0xBB67AE85u);
}

constexpr int kDropoutGroup = 64;  // elements of 16 blocks

// words[i]: the number of element group * 64 + i.
QKV_ROW void group_words(uint64_t seed, uint64_t group, uint32_t* words) {
  const uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  const uint64_t first = group * kLanes;
  const uint32_t low = static_cast<uint32_t>(first), high = static_cast<uint32_t>(first >> 32);  // low + 15 fits
#pragma omp simd
  for (int lane = 0; lane < kLanes; ++lane) {
    const PhiloxBlock b = philox<10>({low + static_cast<uint32_t>(lane), high, 0, 0}, k0, k1);
    words[lane] = b.w0;
    words[lane + kLanes] = b.w1;
    words[lane + 2 * kLanes] = b.w2;
    words[lane + 3 * kLanes] = b.w3;
  }
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

// drop(row, words [last]) for each row of keys [0, n), where words[i] is the number of column i and that key.
template <class Drop>
QKV_ROW void each_row_of_pairs(uint64_t seed, const DropoutColumns& columns, uint32_t key, int n, int first, int last,
                               const Drop& drop) {
  const uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint32_t words[4][DropoutColumns::kMost];
  const uint32_t *queries = columns.query, *planes = columns.plane;
  for (int row = -static_cast<int>(key % 4); row < n; row += 4) {
    const uint32_t group = (key + static_cast<uint32_t>(row)) / 4;
#pragma omp simd
    for (int i = first; i < last; ++i) {
      const PhiloxBlock b = philox<10>({queries[i], group, planes[i], 1}, k0, k1);
      words[0][i] = b.w0;
      words[1][i] = b.w1;
      words[2][i] = b.w2;
      words[3][i] = b.w3;
    }
    for (int w = row < 0 ? -row : 0; w < 4 && row + w < n; ++w) drop(row + w, words[w]);
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
    const uint32_t other = row % 2 ? 0xffffu : 0xffff0000u;                        // the neighbour's half
#pragma omp simd
    for (int i = first; i < last; ++i) si[i] &= words[i] < threshold ? other : ~0u;
  });
}

}  // namespace
