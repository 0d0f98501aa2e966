// SPDX-License-Identifier: Apache-2.0
// Attention in ten lines: 8 query heads share 2 key heads, causal, forward and backward.
#include <cstdio>

#include "qkv/attention.h"

namespace {

// Sample values between -1 and 1.
qkv::Tensor numbers(const qkv::Dims& shape) {
  qkv::Tensor tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<float>(i * 37 % 201 - 100) / 100;
  return tensor;
}

}  // namespace

int main() {
  // clang-format off
  // [README]
  qkv::Tensor q = numbers({1, 8, 1024, 64});                      // [batch, n_head, q_len, d_k]
  qkv::Tensor k = numbers({1, 2, 1024, 64});                      // [batch, n_kv_head, kv_len, d_k]
  qkv::Tensor v = numbers({1, 2, 1024, 64});                      // [batch, n_kv_head, kv_len, d_v]
  qkv::Tensor out({1, 8, 1024, 64}), lse({1, 8, 1024});
  qkv::AttentionOptions options{.causal = true, .alignment = qkv::Alignment::top_left};
  qkv::attention(q, k, v, options, {.out = out, .lse = lse});

  qkv::Tensor dout = numbers(out.shape()), dq(q.shape()), dk(k.shape()), dv(v.shape());
  qkv::attention_backward(q, k, v, out, lse, dout, options, {.dq = dq, .dk = dk, .dv = dv});
  // [README]
  // clang-format on

  // The first query only sees the first key, so its result is the first value.
  const bool right = out.data()[0] == v.data()[0] && out.data()[63] == v.data()[63];
  std::printf("out[0, 0, 0, :2] = %g %g, as v[0, 0, 0, :2] = %g %g\n", out.data()[0], out.data()[1], v.data()[0],
              v.data()[1]);
  return right ? 0 : 1;
}
