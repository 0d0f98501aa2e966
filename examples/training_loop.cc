// SPDX-License-Identifier: Apache-2.0
// A custom training loop: the library computes the loss and its gradients, and your code updates the parameters, here
// by gradient descent with momentum, an optimizer that the trainer does not have.
#include <cstdio>
#include <string_view>
#include <vector>

#include "qkv/generate.h"
#include "qkv/model.h"
#include "qkv/tokenizer.h"
#include "qkv/train.h"

int main() {
  constexpr std::string_view kText = "the quick brown fox jumps over the lazy dog; ";
  const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
  std::vector<std::int32_t> ids;
  while (ids.size() < 200) {
    for (const std::int32_t id : tokenizer.encode(kText)) ids.push_back(id);
  }
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.d_model = 32;
  config.vocab_size = tokenizer.size();
  config.ctx_len = 64;
  qkv::Model model(config, 7);

  // [quote]
  qkv::GradientSum sum(model);
  std::vector<qkv::Tensor> momentum = model.zeros_like_parameters();
  double first = 0, last = 0;
  for (std::size_t step = 0; step < 300; ++step) {
    const std::size_t start = step * 7 % 100, length = 64;
    const qkv::Batch batch{.batch = 1,
                           .ctx = 64,
                           .tokens = std::span(ids).subspan(start, length),
                           .targets = std::span(ids).subspan(start + 1, length),
                           .lengths = {}};
    sum.begin(batch.batch);
    last = model.loss_and_gradients(batch, 1.0 / 64, sum).mean();  // 64 targets of equal weight
    if (step == 0) first = last;
    const std::vector<qkv::Tensor>& gradients = sum.finish();  // [i]: of model.parameters()[i]
    const qkv::Model::ParameterAccess parameters = model.change_parameters();
    const double clip = std::min(1.0, 1.0 / qkv::global_norm(gradients));
    for (std::size_t i = 0; i < parameters->size(); ++i) {
      float *p = parameters[i].data(), *m = momentum[i].data();
      const float* g = gradients[i].data();
      for (std::int64_t j = 0; j < parameters[i].size(); ++j) {
        m[j] = 0.9F * m[j] + static_cast<float>(clip) * g[j];
        p[j] -= 0.1F * m[j];
      }
    }
  }
  // [quote]

  qkv::GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_tokens = 16;
  const std::vector<std::int32_t> prompt = tokenizer.encode("the quick brown ");
  const std::string text = tokenizer.decode(qkv::generate(model, prompt, options).tokens);
  std::printf("loss %.2f, then %.2f; the quick brown |%s|\n", first, last, text.c_str());
  return last < first / 2 ? 0 : 1;
}
