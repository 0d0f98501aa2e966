// SPDX-License-Identifier: Apache-2.0
// What a model and its tokenizer lack to be written in a format of other programs.
#pragma once

#include "formats/families/family.h"
#include "qkv/model_file.h"

namespace qkv {

// The family as which a model is written. Throws std::invalid_argument that lists everything that the format cannot
// hold.
const Family& exported_family(FileFormat format, const ModelConfig& config, const Tokenizer& tokenizer,
                              const TextFacts& facts);

}  // namespace qkv
