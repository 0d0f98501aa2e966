// SPDX-License-Identifier: Apache-2.0
// config.json: qkv::ModelConfig, one key a field (docs/formats.md).
#pragma once

#include <string>

#include "formats/strict_json.h"
#include "qkv/model.h"

namespace qkv {

inline constexpr int kFormatVersion = 2;
inline constexpr int kTensorsVersion = 1;  // of the names and layouts in model.safetensors, in its metadata

// Throws qkv::FileError on a key that is missing, unknown or of the wrong kind, on another version of the format, and
// on a configuration that cannot be.
ModelConfig read_config_json(const JsonPlace& file);
nlohmann::ordered_json config_json(const ModelConfig& config);  // what read_config_json reads
// All members by name: of a layer (rope_scaling is an object), and those that a model has beside its layers'.
nlohmann::ordered_json members_json(const LayerConfig& layer);
nlohmann::ordered_json members_json(const ModelConfig& config);
void write_config_json(const std::string& path, const ModelConfig& config);

}  // namespace qkv
