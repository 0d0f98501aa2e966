// SPDX-License-Identifier: Apache-2.0
// A model as a directory that people can pass on: config.json, model.safetensors, tokenizer.json (docs/formats.md).
#pragma once

#include <string>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv {

struct LoadedModel {
  Model model;
  Tokenizer tokenizer;
};

// Throws qkv::FileError.
LoadedModel load_model(const std::string& directory);
ModelConfig load_config(const std::string& path);  // config.json alone
// Each file is replaced atomically and synced; the directory is made if it is missing.
void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer);

}  // namespace qkv
