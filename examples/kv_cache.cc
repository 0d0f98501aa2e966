// SPDX-License-Identifier: Apache-2.0
// Using a KV cache directly: tokens are added one by one, each attends to all before it, and the results are
// bit-identical to one pass over the whole text.
#include <cstdio>
#include <cstring>

#include "qkv/attention.h"
#include "qkv/kv_cache.h"

namespace {

qkv::Tensor numbers(const qkv::Dims& shape, std::int64_t step) {
  qkv::Tensor tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<float>(i * step % 201 - 100) / 100;
  return tensor;
}

// Token t of [1, heads, len, dim], as [1, heads, 1, dim], without a copy.
qkv::ConstView token(const qkv::Tensor& all, std::int64_t t) {
  qkv::ConstView one = all;
  one.data = static_cast<const float*>(one.data) + t * one.strides[2];
  one.shape[2] = 1;
  return one;
}

}  // namespace

int main() {
  constexpr std::int64_t kLen = 300, kHeads = 4, kKvHeads = 2, kDim = 16;
  const qkv::Tensor q = numbers({1, kHeads, kLen, kDim}, 37);    // [batch, n_head, q_len, d_k]
  const qkv::Tensor k = numbers({1, kKvHeads, kLen, kDim}, 41);  // [batch, n_kv_head, kv_len, d_k]
  const qkv::Tensor v = numbers({1, kKvHeads, kLen, kDim}, 43);  // [batch, n_kv_head, kv_len, d_v]
  const qkv::AttentionOptions causal{.causal = true, .alignment = qkv::Alignment::bottom_right};
  qkv::Tensor whole({1, kHeads, kLen, kDim});
  qkv::attention(q, k, v, causal, {.out = whole});

  // [quote]
  qkv::KvCache cache(1, kKvHeads, kDim, kDim, kLen);  // batch, n_kv_head, d_k, d_v, capacity in tokens
  qkv::Tensor out({1, kHeads, 1, kDim});
  std::int64_t differ = 0;
  for (std::int64_t t = 0; t < kLen; ++t) {
    cache.append(token(k, t), token(v, t));       // the new token's key and value
    cache.attend(token(q, t), {}, {.out = out});  // attends to all tokens so far
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const float* expected = whole.data() + (h * kLen + t) * kDim;
      differ += std::memcmp(out.data() + h * kDim, expected, kDim * sizeof(float)) != 0;
    }
  }
  // [quote]

  std::printf("%ld tokens cached, %ld of %ld results differ from the full pass\n", static_cast<long>(cache.size()),
              static_cast<long>(differ), static_cast<long>(kLen * kHeads));
  return differ == 0 ? 0 : 1;
}
