// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a GGUF file: byte-level BPE (`gpt2`) or pieces with scores (`llama`).
#pragma once

#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Throws qkv::FileError on missing or contradictory keys, and on an unsupported pre-tokenizer or tokenizer model (by
// name).
TokenizerData read_gguf_tokenizer(const Gguf& file);
// The Jinja source of the chat template; empty if there is none. Throws qkv::FileError.
std::string read_gguf_chat_template(const Gguf& file);

// Ids past the tokenizer's become unused tokens, up to vocab_size. Throws std::invalid_argument for anything the format
// cannot store, such as a pre-tokenizer without a GGUF name or added tokens that strip spaces. From `facts`, writes
// named tokens and up to three end tokens; without end tokens, the tokenizer's own.
void write_gguf_tokenizer(GgufWriter& file, const TokenizerData& data, std::int64_t vocab_size, const TextFacts& facts);

}  // namespace qkv
