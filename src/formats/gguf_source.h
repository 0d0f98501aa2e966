// SPDX-License-Identifier: Apache-2.0
// A GGUF file as a model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "formats/model_source.h"

namespace qkv {

// Throws qkv::FileError.
std::unique_ptr<ModelSource> open_gguf(const std::string& path);
// Contents that someone else holds in memory and that outlive the source; `path` is for messages.
std::unique_ptr<ModelSource> open_gguf(const std::string& path, std::span<const std::byte> file);

}  // namespace qkv
