// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of sentencepiece BPE models (LLaMA 1 and 2, Mistral, TinyLlama): characters with byte_fallback instead
// of ByteLevel.
#pragma once

#include <string>

#include "formats/strict_json.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Whether a file has this form: byte_fallback, and no pre-tokenizer other than Metaspace.
bool is_of_characters(const JsonPlace& file);

// Reads normalizer, pre_tokenizer and decoder. A space before the text comes from Prepend or from Metaspace. Throws
// qkv::FileError for any unsupported combination.
void read_character_stages(const JsonPlace& file, TokenizerData& data);

// The same stages, for writing a file.
nlohmann::ordered_json character_normalizer(const TokenizerData& data);
nlohmann::ordered_json character_pre_tokenizer(const TokenizerData& data);
nlohmann::ordered_json character_decoder(const TokenizerData& data);

std::string byte_token(unsigned char byte);             // "<0x0A>"
std::string with_space_marks(const std::string& text);  // U+2581 for each space

}  // namespace qkv
