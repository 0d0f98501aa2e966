// SPDX-License-Identifier: Apache-2.0
// The chat template in a model's files.
#pragma once

#include <cstddef>
#include <string>

namespace qkv {

inline constexpr std::size_t largest_chat_template = 1 << 20;  // bytes; typical templates have a few thousand

// The Jinja source of a model's chat template. In a directory: chat_template.jinja or `chat_template` of
// tokenizer_config.json (of several, the one named "default"); in a GGUF file: tokenizer.chat_template. Empty if the
// model has none. Throws qkv::FileError, also if it is longer than largest_chat_template.
std::string load_chat_template(const std::string& path);

}  // namespace qkv
