// SPDX-License-Identifier: Apache-2.0
// Adapter options: --lora of qkv train, and --lora DIR of the commands that load a model.
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

// Nothing without --lora; ALPHA defaults to 2 * RANK. Throws UsageError.
std::optional<LoraOptions> lora_options(const LoraSettings& settings);

// "rank 8, alpha 16, 460800 parameters in 120 pairs".
std::string describe_lora(const LoraAdapters& adapters);

// --lora DIR: adapters to merge into the model.
void add_lora_option(CLI::App& command, std::string& directory);
// Merges the adapters in `directory` into the model, unless it is empty.
void add_adapters(Model& model, const std::string& directory);
// Loads the model at a path, merges the adapters in `lora` (empty: none), on a device (empty: the default).
LoadedModel load_with_adapters(const std::string& path, const std::string& lora, const std::string& device);

}  // namespace qkv::cli
