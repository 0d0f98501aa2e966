/* SPDX-License-Identifier: Apache-2.0 */
/* Attention from C: 4 query heads share 2 key heads, causal, forward and backward; and an error message. */
#include <math.h>
#include <stdio.h>

#include "qkv_c.h"

enum { kHeads = 4, kKvHeads = 2, kLen = 5, kDim = 3 };

static void fill(float* values, int count, int step) {
  for (int i = 0; i < count; ++i) values[i] = (float)((i * step) % 21 - 10) / 10.0f;
}

int main(void) {
  static float q[kHeads * kLen * kDim], k[kKvHeads * kLen * kDim], v[kKvHeads * kLen * kDim];
  static float out[kHeads * kLen * kDim], lse[kHeads * kLen], dout[kHeads * kLen * kDim], dq[kHeads * kLen * kDim];
  const int64_t q_shape[] = {1, kHeads, kLen, kDim};   /* [batch, n_head, q_len, d_k] */
  const int64_t k_shape[] = {1, kKvHeads, kLen, kDim}; /* [batch, n_kv_head, kv_len, d_k] */
  const int64_t lse_shape[] = {1, kHeads, kLen};
  fill(q, kHeads * kLen * kDim, 5);
  fill(k, kKvHeads * kLen * kDim, 8);
  fill(v, kKvHeads * kLen * kDim, 13);
  fill(dout, kHeads * kLen * kDim, 4);

  const qkv_array q_array = qkv_contiguous(q, QKV_F32, 4, q_shape), dq_array = qkv_contiguous(dq, QKV_F32, 4, q_shape);
  const qkv_array k_array = qkv_contiguous(k, QKV_F32, 4, k_shape), v_array = qkv_contiguous(v, QKV_F32, 4, k_shape);
  const qkv_array out_array = qkv_contiguous(out, QKV_F32, 4, q_shape);
  const qkv_array dout_array = qkv_contiguous(dout, QKV_F32, 4, q_shape);
  const qkv_array lse_array = qkv_contiguous(lse, QKV_F32, 3, lse_shape);

  qkv_attention_options options;
  qkv_attention_options_init(&options);
  options.causal = 1;
  options.alignment = QKV_ALIGN_TOP_LEFT;
  qkv_attention_gradients gradients = {&dq_array, NULL, NULL, NULL, NULL};
  if (qkv_attention(&q_array, &k_array, &v_array, &options, &out_array, &lse_array, NULL) != QKV_OK ||
      qkv_attention_backward(&q_array, &k_array, &v_array, &out_array, &lse_array, &dout_array, &options, &gradients) !=
          QKV_OK) {
    fprintf(stderr, "%s\n", qkv_last_error());
    return 1;
  }
  /* The first query only sees the first key: its result is the first value, which does not depend on q. */
  printf("out[0] = %g %g %g, v[0] = %g %g %g, dq[0] = %g\n", out[0], out[1], out[2], v[0], v[1], v[2], dq[0]);
  const int right = out[0] == v[0] && out[1] == v[1] && out[2] == v[2] && fabsf(dq[0]) < 1e-6f && dq[kDim] != 0;

  options.alignment = QKV_ALIGN_NONE; /* an error: causal without the queries' position */
  const qkv_status status = qkv_attention(&q_array, &k_array, &v_array, &options, &out_array, NULL, NULL);
  printf("%s: %s\n", qkv_status_name(status), qkv_last_error());
  return right && status == QKV_INVALID_ARGUMENT ? 0 : 1;
}
