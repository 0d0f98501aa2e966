// SPDX-License-Identifier: Apache-2.0
// The begin, unknown and padding tokens named in a model's files.
#pragma once

#include <string>

#include "qkv/model_file.h"

namespace qkv {

// The named tokens of a directory. For each token, the first file that names one: tokenizer_config.json (`bos_token`,
// `unk_token`, `pad_token`: the text of an added token), generation_config.json, config.json (`bos_token_id`,
// `unk_token_id`, `pad_token_id`). Null, -1, unknown text and ids outside the vocabulary count as unnamed, since such
// models exist and the names do not affect the computation. Throws qkv::FileError for invalid JSON or wrong types.
NamedTokens read_directory_named_tokens(const std::string& directory, const Tokenizer& tokenizer,
                                        std::int64_t vocab_size);

// Fills in unnamed tokens with those the tokenizer uses.
NamedTokens completed(NamedTokens named, const Tokenizer& tokenizer);

}  // namespace qkv
