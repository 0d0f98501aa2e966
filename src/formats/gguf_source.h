// SPDX-License-Identifier: Apache-2.0
// A GGUF file as a model source.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "formats/model_source.h"

namespace qkv {

// Throws qkv::FileError.
std::unique_ptr<ModelSource> open_gguf(const std::string& path);
// The caller owns the contents and must keep them alive; `path` is for messages.
std::unique_ptr<ModelSource> open_gguf(const std::string& path, std::span<const std::byte> file);

}  // namespace qkv
