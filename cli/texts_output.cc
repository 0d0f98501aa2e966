// SPDX-License-Identifier: Apache-2.0
#include "texts_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "output.h"

namespace qkv::cli {

std::string without_controls(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    const bool c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // U+0080 to U+009F
    if (c1) ++i;
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (control || c1) {
      shown += "\xEF\xBF\xBD";
    } else {
      shown += text[i];
    }
  }
  return shown;
}

void print_generated(std::string_view text) { output_is_terminal() ? print(without_controls(text)) : print(text); }

TextsOutput::TextsOutput(Form form, std::int64_t texts, std::int64_t samples)
    : texts_(static_cast<std::size_t>(texts)), form_(form), samples_(samples) {
  if (texts > 0) print(title(0));
}

std::string TextsOutput::title(std::int64_t text) const {
  if (form_ != Form::titled) return "";
  const std::string sample = samples_ > 1 ? fmt::format(", sample {}", text % samples_ + 1) : "";
  return fmt::format("==> prompt {}{} <==\n", text / samples_ + 1, sample);
}

void TextsOutput::print_turn(std::string_view part) {
  if (part.empty()) return;
  print_generated(part);
  line_open_ = part.back() != '\n';
}

void TextsOutput::push(std::int64_t text, std::string_view part) {
  if (text == turn_ && form_ != Form::json) return print_turn(part);
  texts_[static_cast<std::size_t>(text)].waiting += part;
}

void TextsOutput::end(std::int64_t text, const qkv::GenerateResult& result) {
  Text& of = texts_[static_cast<std::size_t>(text)];
  of.ended = true;
  if (form_ == Form::json) of.waiting = json_line(text, result);
  while (turn_ < static_cast<std::int64_t>(texts_.size()) && texts_[static_cast<std::size_t>(turn_)].ended) {
    print_turn(std::exchange(texts_[static_cast<std::size_t>(turn_)].waiting, std::string()));
    if (std::exchange(line_open_, false)) print("\n");
    if (++turn_ == static_cast<std::int64_t>(texts_.size())) return;
    print(title(turn_));
    if (form_ != Form::json) print_turn(std::exchange(texts_[static_cast<std::size_t>(turn_)].waiting, std::string()));
  }
}

std::string TextsOutput::json_line(std::int64_t text, const qkv::GenerateResult& result) const {
  const Text& of = texts_[static_cast<std::size_t>(text)];
  nlohmann::ordered_json line;
  line["prompt"] = text / samples_ + 1;
  line["sample"] = text % samples_ + 1;
  line["text"] = of.waiting;
  line["tokens"] = result.tokens;
  const bool interrupted = result.reason == StopReason::callback || result.reason == StopReason::cancelled;
  line["stopped"] = interrupted ? "interrupted" : stop_reason_name(result.reason);
  return line.dump() + "\n";
}

}  // namespace qkv::cli
