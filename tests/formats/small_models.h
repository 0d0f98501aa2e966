// SPDX-License-Identifier: Apache-2.0
// Models of the supported families, large enough for a few blocks of every type per row.
#pragma once

#include "qkv/model.h"

namespace qkv::test {

inline ModelConfig small_llama() {
  ModelConfig c = preset("llama-135m");
  c.n_layer = 2;
  c.n_head = 4;
  c.n_kv_head = 2;
  c.head_dim = c.v_head_dim = 16;
  c.d_model = 64;
  c.d_ff = 96;
  c.vocab_size = 300;
  c.ctx_len = 40;
  return c;
}

inline ModelConfig small_gpt2() {
  ModelConfig c = preset("gpt2");
  c.n_layer = 2;
  c.n_head = c.n_kv_head = 4;
  c.head_dim = c.v_head_dim = 8;
  c.d_model = 32;
  c.d_ff = 64;
  c.vocab_size = 300;
  c.ctx_len = 32;
  return c;
}

}  // namespace qkv::test
