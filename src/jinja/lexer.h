// SPDX-License-Identifier: Apache-2.0
// A template cut into tokens, white space taken away as with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::jinja {

struct Token {
  enum Kind {
    data,
    block_begin,
    block_end,
    variable_begin,
    variable_end,
    name,
    string,
    integer,
    number,
    symbol,
    end
  } kind;
  std::string text;  // strings are unescaped
  int line, column;
};

std::vector<Token> tokens_of(std::string_view text);  // throws TemplateError

}  // namespace qkv::jinja
