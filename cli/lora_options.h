// SPDX-License-Identifier: Apache-2.0
// Adapters on the command line: --lora of qkv train, and --lora DIR of the commands that read a model.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qkv/lora.h"
#include "qkv/model_file.h"

namespace qkv::cli {

struct LoraSettings {
  std::string shape;                 // "RANK" or "RANK,ALPHA"; empty: all parameters are trained
  std::vector<std::string> targets;  // empty: those of LoraOptions
};
void add_lora_training_options(CLI::App& command, LoraSettings& settings, const std::string& group);

// Nothing without --lora; ALPHA is 2 * RANK where it is not given. Throws UsageError.
std::optional<LoraOptions> lora_options(const LoraSettings& settings);

// "rank 8, alpha 16, 460800 parameters in 120 pairs".
std::string describe_lora(const LoraAdapters& adapters);

// --lora DIR: adapters to add to the model of a command.
void add_lora_option(CLI::App& command, std::string& directory);
// Adds the adapters in `directory` to the model, unless it is empty.
void add_adapters(Model& model, const std::string& directory);
// The model at a path with the adapters in `lora`, unless that is empty, on a device (empty: the model's own).
LoadedModel load_with_adapters(const std::string& path, const std::string& lora, const std::string& device);

}  // namespace qkv::cli
