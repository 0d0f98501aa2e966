// SPDX-License-Identifier: Apache-2.0
// The options of `qkv train`: their sources, and which of them were given.
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

// The model of `qkv train` without --preset and --init.
inline constexpr const char* kDefaultPreset = "llama-4m";

struct TrainSettings {
  std::vector<std::string> data;
  std::string out, device;
  std::string config_file;
  std::string preset;
  std::string init;      // start from this model instead of a random one
  AndreaOptions andrea;  // of the --init file
  LoraSettings lora;
  std::string tokenizer;  // "" (chosen by text size), "bytes", "bpe:SIZE", "harris:SIZE" or a file
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

  // Writes the given values into a configuration and leaves the rest unchanged.
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

// Adds all options to the subcommand; they are set when its callback runs.
std::shared_ptr<TrainSettings> add_train_options(CLI::App& command);

// Reads the --config file: options not given on the command line get their values from it. Throws UsageError
// for a key that is not an option and qkv::FileError for an unreadable file.
void read_config_file(CLI::App& command, const TrainSettings& settings);

}  // namespace qkv::cli
