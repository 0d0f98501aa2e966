// SPDX-License-Identifier: Apache-2.0
// Prints texts that are generated in parallel, in order: the first unfinished text is streamed, the others are buffered
// until their turn.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/generate.h"

namespace qkv::cli {

class TextsOutput {
 public:
  enum class Form { plain, titled, json };
  // plain: the text and a newline; titled: a title line above each text; json: one object per line when the text is
  // finished.
  TextsOutput(Form form, std::int64_t texts, std::int64_t samples);

  // Appends to a text.
  void push(std::int64_t text, std::string_view part);
  // The text is finished; it is printed completely once all texts before it are.
  void end(std::int64_t text, const qkv::GenerateResult& result);

 private:
  struct Text {
    std::string waiting;  // buffered output; json: the text, then its line
    bool ended = false;
  };
  void print_turn(std::string_view part);
  std::string title(std::int64_t text) const;
  std::string json_line(std::int64_t text, const qkv::GenerateResult& result) const;

  std::vector<Text> texts_;
  Form form_;
  std::int64_t samples_;
  std::int64_t turn_ = 0;  // index of the text being printed
  bool line_open_ = false;
};

// Control characters other than tab and line feed as U+FFFD.
std::string without_controls(std::string_view text);

// Prints generated text to standard output. On a terminal, control characters other than tab and line feed become
// U+FFFD, so that generated text cannot control the terminal.
void print_generated(std::string_view text);

}  // namespace qkv::cli
