// SPDX-License-Identifier: Apache-2.0
// Detects the format of a model; the only place that does.
#pragma once

#include <memory>
#include <string>

#include "formats/model_source.h"

namespace qkv {

// Throws qkv::FileError, also if the format is not recognised.
std::unique_ptr<ModelSource> open_model(const std::string& path);

}  // namespace qkv
