// SPDX-License-Identifier: Apache-2.0
// tokenizer.json in the layout of Hugging Face's `tokenizers`, for byte-level BPE.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer_data.h"

namespace qkv {

// Throws qkv::FileError on what is malformed, and on what qkv cannot do and would otherwise have to ignore.
TokenizerData read_tokenizer_json(const std::string& path);
void write_tokenizer_json(const std::string& path, const TokenizerData& data);
// The same of the file's text; `path` is for messages.
TokenizerData parse_tokenizer_json(const std::string& path, std::string_view text);
// Throws std::invalid_argument for an added token that is no UTF-8, as a GGUF file may have; so does the one above.
std::string tokenizer_json_text(const TokenizerData& data);

}  // namespace qkv
