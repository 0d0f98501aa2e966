// SPDX-License-Identifier: Apache-2.0
// config.json: qkv::ModelConfig, one key per field (docs/formats.md).
#pragma once

#include <string>

#include "formats/strict_json.h"
#include "qkv/model.h"

namespace qkv {

inline constexpr int kFormatVersion = 2;
inline constexpr int kTensorsVersion = 1;  // version of tensor names and layouts, in model.safetensors' metadata

// Throws qkv::FileError on a missing or unknown key, a key of the wrong type, another version of the format, or an
// invalid configuration.
ModelConfig read_config_json(const JsonPlace& file);
nlohmann::ordered_json config_json(const ModelConfig& config);  // read back by read_config_json
// All members by name: those of a layer (rope_scaling is an object), and those of the model only.
nlohmann::ordered_json members_json(const LayerConfig& layer);
nlohmann::ordered_json members_json(const ModelConfig& config);
void write_config_json(const std::string& path, const ModelConfig& config);

}  // namespace qkv
