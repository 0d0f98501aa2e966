// SPDX-License-Identifier: Apache-2.0
// The files of a model directory, for code that stores additional files in it (see also qkv/model_file.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "qkv/model_file.h"

namespace qkv {

inline constexpr const char* kModelFiles[] = {"config.json", "tokenizer.json", "model.safetensors"};

// Written only if TextFacts differ from the tokenizer's.
inline constexpr const char* kTextFactFiles[] = {"generation_config.json", "chat_template.jinja"};
std::vector<std::string> text_fact_files(const std::string& directory);  // those that exist

inline constexpr const char* kAdapterFiles[] = {"adapter_config.json", "adapter_model.safetensors"};

// save_model; all bytes of model.safetensors are passed to `weights_watcher`, if set, as they are written.
void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer, const TextFacts& facts,
                const std::function<void(const void* data, std::size_t size)>& weights_watcher);

// Throws std::invalid_argument, prefixed with `where`, for end tokens outside the vocabulary and a template that is too
// long.
void check_text_facts(const char* where, const TextFacts& facts, const ModelConfig& config);

}  // namespace qkv
