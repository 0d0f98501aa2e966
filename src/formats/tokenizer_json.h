// SPDX-License-Identifier: Apache-2.0
// tokenizer.json in the format of Hugging Face `tokenizers`, for byte-level BPE.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer_data.h"

namespace qkv {

// Throws qkv::FileError on malformed input and on unsupported features that would otherwise be ignored.
TokenizerData read_tokenizer_json(const std::string& path);
void write_tokenizer_json(const std::string& path, const TokenizerData& data);
// The same, from the file's text; `path` is for messages.
TokenizerData parse_tokenizer_json(const std::string& path, std::string_view text);
// Throws std::invalid_argument for an added token that is not UTF-8, which GGUF files may have; so does the function
// above.
std::string tokenizer_json_text(const TokenizerData& data);

}  // namespace qkv
