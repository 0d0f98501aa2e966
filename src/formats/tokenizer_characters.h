// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of sentencepiece's BPE models (LLaMA 1 and 2, Mistral, TinyLlama): characters with byte_fallback in
// the place of ByteLevel.
#pragma once

#include <string>

#include "formats/strict_json.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Whether a file is one of them: byte_fallback, and no pre-tokenizer but Metaspace.
bool is_of_characters(const JsonPlace& file);

// Reads normalizer, pre_tokenizer and decoder. A space before the text comes from Prepend or from Metaspace. Throws
// qkv::FileError for what is none of the known ways.
void read_character_stages(const JsonPlace& file, TokenizerData& data);

// The same stages of a file to be written.
nlohmann::ordered_json character_normalizer(const TokenizerData& data);
nlohmann::ordered_json character_pre_tokenizer(const TokenizerData& data);
nlohmann::ordered_json character_decoder(const TokenizerData& data);

std::string byte_token(unsigned char byte);             // "<0x0A>"
std::string with_space_marks(const std::string& text);  // U+2581 for each space

}  // namespace qkv
