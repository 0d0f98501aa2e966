// SPDX-License-Identifier: Apache-2.0
// What a model has read of a text, as a file, so that the same beginning need not be read again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qkv/model.h"

namespace qkv {

// A text, and what a model has read of it. As new, it is empty and fits every model; then only the model it was first
// used with.
struct TextContext {
  std::vector<std::int32_t> tokens;  // the text
  ModelState state;                  // of tokens[0 ... state.size() - 1]
};

// Reads a text into a context: the beginning that the context has read already is kept, what differs is forgotten, the
// rest, and the last token in any case, is read. type: of a state that has to be made (none: the operands' type).
// Returns how many tokens were read. Throws std::invalid_argument on an empty text, on one longer than ctx_len and on a
// token outside the vocabulary.
std::int64_t prefill(Model& model, std::span<const std::int32_t> text, TextContext& context,
                     std::optional<DType> type = std::nullopt);

// Writes the tokens that the context has read, and their keys and values, atomically (docs/formats.md). The file holds
// a checksum, and a fingerprint of the model: the logits it gives to a few tokens, bit for bit, so that keys and values
// made by another model, in another type of numbers or with other kernels are never taken for its own. Throws
// qkv::FileError.
void save_prompt_cache(const std::string& path, Model& model, const TextContext& context);

// Takes a file back into a context, whose state is made if it has none; its cache type must be the file's. The context
// holds the file's tokens then; prefill() and Engine::add_prefix() find out how much of them a prompt shares. Throws
// qkv::FileError for a file that is damaged, of another model or of another cache type, before the context is changed.
void load_prompt_cache(const std::string& path, Model& model, TextContext& context);

}  // namespace qkv
