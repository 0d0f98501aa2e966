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

// One GGUF file, version 3, which llama.cpp reads. type: "f32", "f16", "bf16", "q8_0", "q4_0" or "q4_1", for matrices;
// vectors and learned positions stay f32, and with four bits the token embedding and the head become q8_0. Throws
// std::invalid_argument for a model that is neither of llama's nor of gpt2's shape, for rows that are no multiple of
// the type's block, and for a tokenizer that the format cannot say. Atomic; throws qkv::FileError.
void save_gguf(const std::string& path, const Model& model, const Tokenizer& tokenizer,
               const std::string& type = "bf16");

}  // namespace qkv
