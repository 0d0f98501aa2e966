// SPDX-License-Identifier: Apache-2.0
// Model directories in qkv's own or Hugging Face's format, detected from config.json.
#pragma once

#include <memory>
#include <string>

#include "formats/model_source.h"

namespace qkv {

// Throws qkv::FileError.
std::unique_ptr<ModelSource> open_directory(const std::string& directory);

// config.json in either format.
ModelConfig read_any_config(const std::string& path);

}  // namespace qkv
