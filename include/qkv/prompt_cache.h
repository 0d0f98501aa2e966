// SPDX-License-Identifier: Apache-2.0
// What a model has read of a text, as a file, so that the same beginning need not be read again.
#pragma once

#include <string>

#include "qkv/generate.h"

namespace qkv {

// Writes the tokens that the context has read, and their keys and values, atomically (docs/formats.md). The file holds
// a checksum, and a fingerprint of the model: the logits it gives to a few tokens, bit for bit, so that keys and values
// made by another model, in another type of numbers or with other kernels are never taken for its own. Throws
// qkv::FileError.
void save_prompt_cache(const std::string& path, Model& model, const TextContext& context);

// Takes a file back into a context, whose state is made if it has none; its cache type must be the file's. The context
// holds the file's tokens then; generate() and read_text() find out how much of them a prompt shares. Throws
// qkv::FileError for a file that is damaged, of another model or of another cache type, before the context is changed.
void load_prompt_cache(const std::string& path, Model& model, TextContext& context);

}  // namespace qkv
