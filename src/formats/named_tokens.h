// SPDX-License-Identifier: Apache-2.0
// The tokens that files call the beginning of a text, the unknown token and padding.
#pragma once

#include <string>

#include "qkv/model_file.h"

namespace qkv {

// What a directory says. Of each token, the first that names one: tokenizer_config.json (`bos_token`, `unk_token`,
// `pad_token`: the text of an added token), generation_config.json, config.json (`bos_token_id`, `unk_token_id`,
// `pad_token_id`). Null, -1, a text that is no added token and an id past the vocabulary name none, as such models
// exist and the names change nothing that qkv computes. Throws qkv::FileError for what is no JSON of this kind.
NamedTokens read_directory_named_tokens(const std::string& directory, const Tokenizer& tokenizer,
                                        std::int64_t vocab_size);

// With what the tokenizer itself uses where nothing is named.
NamedTokens completed(NamedTokens named, const Tokenizer& tokenizer);

}  // namespace qkv
