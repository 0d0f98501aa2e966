// SPDX-License-Identifier: Apache-2.0
// Models in directories: qkv's own and Hugging Face's, told apart by config.json.
#pragma once

#include <memory>
#include <string>

#include "formats/model_source.h"

namespace qkv {

// Throws qkv::FileError.
std::unique_ptr<ModelSource> open_directory(const std::string& directory);

// config.json of either kind.
ModelConfig read_any_config(const std::string& path);

}  // namespace qkv
