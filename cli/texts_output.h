// SPDX-License-Identifier: Apache-2.0
// Texts that are written at the same time, printed in their order: the first that is not finished as it grows, the
// others when their turn comes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/generate.h"
#include "shown_text.h"

namespace qkv::cli {

class TextsOutput {
 public:
  enum class Form { plain, titled, json };
  // plain: the text and a new line; titled: a line that says which one stands above each; json: one object a line, when
  // the text is finished.
  TextsOutput(const qkv::Tokenizer& tokenizer, const std::vector<std::string>& stop, Form form, std::int64_t texts,
              std::int64_t samples);

  // A token of a text; whether the text goes on.
  bool push(std::int64_t text, std::int32_t token);
  // The text is finished: it is printed whole once all before it are.
  void end(std::int64_t text, const qkv::GenerateResult& result);
  bool stopped(std::int64_t text) const { return texts_[static_cast<std::size_t>(text)].shown.stopped(); }

 private:
  struct Text {
    ShownText shown;
    std::string waiting;  // to be printed when its turn comes; json: all of it, and then the line
    bool ended = false;
  };
  void show(std::int64_t text, const std::string& part);
  void print_turn(const std::string& part);
  std::string title(std::int64_t text) const;
  std::string json_line(std::int64_t text, const qkv::GenerateResult& result) const;

  std::vector<Text> texts_;
  Form form_;
  std::int64_t samples_;
  std::int64_t turn_ = 0;  // all texts before it are printed
  bool line_open_ = false;
};

// "max_tokens", "end_token", "context_full", "stop_string", "interrupted".
std::string stop_reason_name(qkv::StopReason reason, bool stopped);

}  // namespace qkv::cli
