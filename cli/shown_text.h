// SPDX-License-Identifier: Apache-2.0
// From tokens to what a reader sees: whole characters, and nothing of a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/stop_strings.h"
#include "qkv/tokenizer.h"

namespace qkv::cli {

// Text as a model wrote it to standard output. Where that is a terminal, control characters other than tab and line
// feed come as U+FFFD: nothing that a model writes steers it.
void print_written(std::string_view text);

class ShownText {
 public:
  // The tokenizer must outlive it.
  ShownText(const qkv::Tokenizer& tokenizer, const std::vector<std::string>& stop)
      : tokenizer_(tokenizer), stop_(stop) {}

  // What can be shown once this token has come.
  std::string push(std::int32_t token) { return characters_.push(stop_.push(tokenizer_.decode(token))); }
  bool stopped() const noexcept { return stop_.found(); }
  // What was held back, when nothing more comes.
  std::string finish() {
    std::string rest = characters_.push(stop_.flush());
    rest += characters_.flush();
    return rest;
  }

 private:
  const qkv::Tokenizer& tokenizer_;
  qkv::StopStrings stop_;
  qkv::Utf8Stream characters_;
};

}  // namespace qkv::cli
