// SPDX-License-Identifier: Apache-2.0
// Texts that are written at the same time, printed in their order: the first that is not finished as it grows, the
// others when their turn comes.
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
  // plain: the text and a new line; titled: a line that says which one stands above each; json: one object a line, when
  // the text is finished.
  TextsOutput(Form form, std::int64_t texts, std::int64_t samples);

  // More of a text.
  void push(std::int64_t text, std::string_view part);
  // The text is finished: it is printed whole once all before it are.
  void end(std::int64_t text, const qkv::GenerateResult& result);

 private:
  struct Text {
    std::string waiting;  // to be printed when its turn comes; json: all of it, and then the line
    bool ended = false;
  };
  void print_turn(std::string_view part);
  std::string title(std::int64_t text) const;
  std::string json_line(std::int64_t text, const qkv::GenerateResult& result) const;

  std::vector<Text> texts_;
  Form form_;
  std::int64_t samples_;
  std::int64_t turn_ = 0;  // all texts before it are printed
  bool line_open_ = false;
};

// Control characters other than tab and line feed as U+FFFD.
std::string without_controls(std::string_view text);

// Text as a model wrote it to standard output. Where that is a terminal, control characters other than tab and line
// feed come as U+FFFD: nothing that a model writes steers it.
void print_generated(std::string_view text);

}  // namespace qkv::cli
