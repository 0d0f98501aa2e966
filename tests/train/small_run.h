// SPDX-License-Identifier: Apache-2.0
// A model so small that a step takes a millisecond, and text for it.
#pragma once

#include <string>

#include "qkv/train.h"

namespace qkv {

inline ModelConfig small_model() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.d_model = 16;
  config.d_ff = 40;
  config.ctx_len = 12;
  config.vocab_size = 257;
  return config;
}

inline TrainConfig small_training() {
  TrainConfig config;
  config.steps = 10;
  config.batch_size = 3;
  config.learning_rate = 3e-3;
  config.warmup_steps = 4;
  config.eval_interval = 0;
  config.checkpoint_interval = 0;
  config.sample_interval = 0;
  config.seed = 11;
  return config;
}

// With every optional feature of a run.
inline TrainConfig full_training() {
  TrainConfig config = small_training();
  config.eval_interval = 4;
  config.eval_iters = 2;
  config.checkpoint_interval = 3;
  return config;
}

inline TokenDataset small_data() {
  std::vector<std::int32_t> training, validation;
  for (int i = 0; i < 900; ++i) training.push_back("the cat sat on the mat; "[i % 24]);
  for (int i = 0; i < 100; ++i) validation.push_back("the cat sat on the mat; "[(i + 5) % 24]);
  return TokenDataset::from_tokens(training, validation, 257);
}

inline Trainer small_trainer(const TrainConfig& config = small_training()) {
  return Trainer(Model(small_model(), config.seed), Tokenizer::bytes(), small_data(), config);
}

// All parameters, concatenated.
inline std::vector<float> weights(Trainer& trainer) {
  std::vector<float> all;
  for (const Tensor& p : trainer.model().parameters()) all.insert(all.end(), p.data(), p.data() + p.size());
  return all;
}

// The optimizer's tensors whose names have this prefix, concatenated.
inline std::vector<float> moments(const Trainer& trainer, const std::string& prefix) {
  std::vector<float> all;
  for (const OptimizerTensor& own : trainer.optimizer().state())
    if (own.name.starts_with(prefix)) all.insert(all.end(), own.tensor.data(), own.tensor.data() + own.tensor.size());
  return all;
}

inline std::vector<float> values(const std::vector<Tensor>& tensors) {
  std::vector<float> all;
  for (const Tensor& t : tensors) all.insert(all.end(), t.data(), t.data() + t.size());
  return all;
}

}  // namespace qkv
