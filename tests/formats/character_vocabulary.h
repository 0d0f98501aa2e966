// SPDX-License-Identifier: Apache-2.0
// The start of character-level BPE vocabularies, as sentencepiece models (LLaMA 2, TinyLlama, Mistral) are stored in
// tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/tokenizer_data.h"

namespace qkv::test {

// <unk>, <s>, </s> and the bytes; the caller adds characters and merges.
inline TokenizerData character_vocabulary() {
  TokenizerData data;
  data.tokens = {"<unk>", "<s>", "</s>"};
  for (std::int32_t id = 0; id < 3; ++id)
    data.added.push_back({.id = id, .content = data.tokens[static_cast<std::size_t>(id)], .special = true});
  for (int byte = 0; byte < 256; ++byte) {
    data.byte_ids.push_back(static_cast<std::int32_t>(data.tokens.size()));
    data.tokens.emplace_back(1, static_cast<char>(byte));
  }
  data.characters = data.add_prefix_space = data.fuse_unknown = true;
  data.unknown_token = 0;
  return data;
}

}  // namespace qkv::test
