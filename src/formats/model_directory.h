// SPDX-License-Identifier: Apache-2.0
// The files of a model directory, for those who keep more there than qkv/model_file.h does.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "qkv/model_file.h"

namespace qkv {

inline constexpr const char* kModelFiles[] = {"config.json", "tokenizer.json", "model.safetensors"};

inline constexpr const char* kAdapterFiles[] = {"adapter_config.json", "adapter_model.safetensors"};

// save_model; all bytes of model.safetensors pass `weights_watcher`, if there is one, as they are written.
void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer,
                const std::function<void(const void* data, std::size_t size)>& weights_watcher);

}  // namespace qkv
