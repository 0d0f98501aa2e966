// SPDX-License-Identifier: Apache-2.0
// Checks whether a model and its tokenizer can be exported to a format of other programs.
#pragma once

#include "formats/families/family.h"
#include "qkv/model_file.h"

namespace qkv {

// The family to export a model as. Throws std::invalid_argument that lists everything the format cannot represent.
const Family& exported_family(FileFormat format, const ModelConfig& config, const Tokenizer& tokenizer,
                              const TextFacts& facts);

}  // namespace qkv
