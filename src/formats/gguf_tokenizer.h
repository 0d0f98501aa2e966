// SPDX-License-Identifier: Apache-2.0
// The tokenizer inside a GGUF file: byte-level BPE (`gpt2`) and pieces by score (`llama`).
#pragma once

#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Throws qkv::FileError on what is missing, contradicts itself, or would be split or joined in a way that qkv does not
// know (by its name).
TokenizerData read_gguf_tokenizer(const Gguf& file);
// The Jinja text of the chat template; empty if there is none. Throws qkv::FileError.
std::string read_gguf_chat_template(const Gguf& file);

// Ids past the tokenizer's become unused tokens, up to vocab_size. Throws std::invalid_argument for what the format
// cannot say: a split that has no name there, spaces taken away around added tokens. Of the facts, which tokens have
// names: of those that end a text the first three have a place; where there are none, the tokenizer's own.
void write_gguf_tokenizer(GgufWriter& file, const TokenizerData& data, std::int64_t vocab_size, const TextFacts& facts);

}  // namespace qkv
