// SPDX-License-Identifier: Apache-2.0
// A custom mask: several texts packed into one sequence, each of which only attends to itself.
#include <cstdio>
#include <memory>
#include <vector>

#include "qkv/attention.h"

namespace {

qkv::Tensor numbers(const qkv::Dims& shape, std::int64_t step) {
  qkv::Tensor tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<float>(i * step % 201 - 100) / 100;
  return tensor;
}

}  // namespace

int main() {
  constexpr std::int64_t kLen = 12, kHeads = 2, kDim = 8;
  const std::vector<int> text_of = {0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2};  // [kLen], the text that each token belongs to
  const qkv::Tensor q = numbers({1, kHeads, kLen, kDim}, 37);             // [batch, n_head, q_len, d_k]
  const qkv::Tensor k = numbers({1, kHeads, kLen, kDim}, 41);             // [batch, n_head, kv_len, d_k]
  const qkv::Tensor v = numbers({1, kHeads, kLen, kDim}, 43);             // [batch, n_head, kv_len, d_v]

  // [quote]
  auto allowed = std::make_unique<bool[]>(kLen * kLen);  // [q_len, kv_len]: true if query i may attend to key j
  for (std::size_t i = 0; i < kLen; ++i)
    for (std::size_t j = 0; j < kLen; ++j) allowed[i * kLen + j] = text_of[i] == text_of[j];
  qkv::AttentionOptions options{.causal = true, .alignment = qkv::Alignment::top_left};
  options.mask = qkv::view(static_cast<const bool*>(allowed.get()), {kLen, kLen});  // for all sequences and heads
  qkv::Tensor out({1, kHeads, kLen, kDim}), probs({1, kHeads, kLen, kLen});
  qkv::attention(q, k, v, options, {.out = out, .probs = probs});
  // [quote]

  // Text 1's weights on the other texts are exactly 0, and its first token only attends to itself.
  bool right = true;
  for (std::int64_t i = 5; i < 8; ++i) {
    std::printf("query %2ld:", static_cast<long>(i));
    for (std::int64_t j = 0; j < kLen; ++j) {
      const float p = probs.data()[i * kLen + j];  // head 0
      std::printf(" %.2f", p);
      right = right && (j >= 5 && j <= i ? p > 0 : p == 0);
    }
    std::printf("\n");
  }
  return right && probs.data()[5 * kLen + 5] == 1 ? 0 : 1;
}
