// SPDX-License-Identifier: Apache-2.0
// Attention, a model, and an exception that is caught outside the library.
#include <qkv/qkv.h>
#include <qkv_c.h>

#include <cmath>
#include <cstdio>
#include <cstring>

int main() {
  qkv::Tensor q({1, 1, 2, 1}), v({1, 1, 2, 1});
  v.data()[0] = 1;
  v.data()[1] = 3;
  const qkv::Tensor out = qkv::attention(q, q, v);  // both keys have the same weight
  qkv::ModelConfig config;
  config.n_layer = 1;
  config.vocab_size = 257;
  qkv::Model model(config, 1);
  qkv::GenerateOptions options;
  options.max_tokens = 3;
  const std::size_t tokens = qkv::generate(model, std::vector<std::int32_t>{1, 2}, options).tokens.size();
  bool caught = false;
  try {
    qkv::load_model("/no/such/model");
  } catch (const qkv::FileError& error) {
    caught = error.path() == "/no/such/model";
  }
  std::printf("%s: %g, %zu tokens, %s\n", qkv_version(), out.data()[1], tokens, caught ? "caught" : "not caught");
  return out.data()[0] == 2 && out.data()[1] == 2 && tokens == 3 && caught ? 0 : 1;
}
