// SPDX-License-Identifier: Apache-2.0
// The chat template that a model's files bring along.
#pragma once

#include <cstddef>
#include <string>

namespace qkv {

inline constexpr std::size_t largest_chat_template = 1 << 20;  // bytes; real ones have a few thousand

// The Jinja text of a model's chat template: of a directory, chat_template.jinja or the `chat_template` of
// tokenizer_config.json (of several there, the one named "default"); of a GGUF file, tokenizer.chat_template. Empty if
// the model has none. Throws qkv::FileError, for one longer than largest_chat_template too.
std::string load_chat_template(const std::string& path);

}  // namespace qkv
