// SPDX-License-Identifier: Apache-2.0
// Prompt cache files: the KV cache of a prompt, so that a shared prefix need not be evaluated again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qkv/model.h"

namespace qkv {

// Tokens of a text and the KV cache of those evaluated. A new context is empty and works with any model; after first
// use, only with that model.
struct TextContext {
  std::vector<std::int32_t> tokens;  // of the text
  ModelState state;                  // of tokens[0 ... state.size() - 1]
};

// Evaluates a text into a context: the longest common prefix is kept, cached tokens that differ are dropped, and the
// rest, at least the last token, is evaluated. type: KV cache type if the state must be created (nullopt: the compute
// dtype). Returns the number of tokens evaluated. Throws std::invalid_argument for an empty text, one longer than
// ctx_len, or a token outside the vocabulary.
std::int64_t prefill(Model& model, std::span<const std::int32_t> text, TextContext& context,
                     std::optional<DType> type = std::nullopt);

// Writes the evaluated tokens and their keys and values, atomically (docs/formats.md). The file contains a checksum and
// a fingerprint of the model, its exact logits for a few tokens, so that a cache from another model, compute dtype or
// kernel set is always rejected. Throws qkv::FileError.
void save_prompt_cache(const std::string& path, Model& model, const TextContext& context);

// Loads a file into a context; the state is created if there is none, else its cache type must match the file's. The
// context then has the file's tokens; prefill() and Engine::add_prefix() determine how many of them a prompt shares.
// Throws qkv::FileError for a file that is damaged or of another model or cache type, before the context is changed.
void load_prompt_cache(const std::string& path, Model& model, TextContext& context);

}  // namespace qkv
