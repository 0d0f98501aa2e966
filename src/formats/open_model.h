// SPDX-License-Identifier: Apache-2.0
// The one place that tells formats of models apart.
#pragma once

#include <memory>
#include <string>

#include "formats/model_source.h"

namespace qkv {

// Throws qkv::FileError, also for what is no model of a format that qkv reads.
std::unique_ptr<ModelSource> open_model(const std::string& path);

}  // namespace qkv
