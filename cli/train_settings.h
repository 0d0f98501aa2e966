// SPDX-License-Identifier: Apache-2.0
// The options of `qkv train`: where they come from and which of them were given.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "andrea_options.h"
#include "corpus_options.h"
#include "lora_options.h"
#include "qkv/model.h"
#include "qkv/train.h"

namespace qkv::cli {

// The model that `qkv train` makes without --preset and --init.
inline constexpr const char* kDefaultPreset = "llama-4m";

struct TrainSettings {
  std::vector<std::string> data;
  std::string out, device;
  std::string config_file;
  std::string preset;
  std::string init;      // a model to begin with instead of a random one
  AndreaOptions andrea;  // of its file
  LoraSettings lora;
  std::string tokenizer;  // "" (by the text's size), "bytes", "bpe:SIZE", "harris:SIZE" or a file
  double validation_fraction = 0.1;
  TextOptions text;
  bool resume = false;
  std::int64_t stop_after = 0;
  double save_patience = 600;  // seconds
  bool memory_check = true;
  std::string dtype = "auto";  // auto, f32 or bf16
  bool profile = false;
  std::string sample_prompt = "\n";
  std::int64_t sample_tokens = 60;

  // Puts the values that were given into a configuration, and leaves the rest of it as it is.
  std::vector<std::function<void(ModelConfig&)>> model_values;
  std::vector<std::function<void(TrainConfig&)>> train_values;
  void apply(ModelConfig& config) const {
    for (const auto& value : model_values) value(config);
  }
  void apply(TrainConfig& config) const {
    for (const auto& value : train_values) value(config);
  }
  CLI::Option* validation_fraction_option = nullptr;
};

// Adds all options to the subcommand; they are filled in when its callback runs.
std::shared_ptr<TrainSettings> add_train_options(CLI::App& command);

// Reads the --config file: each option that was not given on the command line takes its value from there. Throws
// UsageError for a key that is no option and qkv::FileError for a file that cannot be read.
void read_config_file(CLI::App& command, const TrainSettings& settings);

}  // namespace qkv::cli
