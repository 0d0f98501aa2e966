// SPDX-License-Identifier: Apache-2.0
// The model of a new run: random from a seed, or loaded from a file (--init).
#pragma once

#include <optional>

#include "qkv/model_file.h"
#include "train_settings.h"

namespace qkv::cli {

// The requested configuration on top of `base`; vocab_size comes from the tokenizer.
ModelConfig asked_model(const TrainSettings& settings, ModelConfig base, std::int64_t vocab_size);

// "exports to: Hugging Face (llama), GGUF (llama)", and the reason for each format that is impossible.
std::string exports_text(const ModelConfig& config, const Tokenizer& tokenizer);

// Throws UsageError (prefix `what`) that names a model option which contradicts `stored`.
void check_same_shape(const TrainSettings& settings, const ModelConfig& stored, const std::string& what);

// The model of --init. take() loads its weights, once.
class InitialModel {
 public:
  // Nothing without --init. Throws qkv::FileError, or UsageError for options that contradict the file.
  static std::optional<InitialModel> open(const TrainSettings& settings);

  const ModelConfig& config() const noexcept { return config_; }
  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  const TextFacts& text_facts() const noexcept { return facts_; }
  Model take(const std::string& device);  // in the device's type, whatever type is stored

 private:
  InitialModel(std::string path, ModelConfig config, Tokenizer tokenizer, TextFacts facts)
      : path_(std::move(path)),
        config_(std::move(config)),
        tokenizer_(std::move(tokenizer)),
        facts_(std::move(facts)) {}

  std::string path_;
  ModelConfig config_;
  Tokenizer tokenizer_;
  TextFacts facts_;
  std::optional<Model> model_;  // set if it had to be loaded to know its shape
};

}  // namespace qkv::cli
