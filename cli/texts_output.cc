// SPDX-License-Identifier: Apache-2.0
#include "texts_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli.h"

namespace qkv::cli {

TextsOutput::TextsOutput(const qkv::Tokenizer& tokenizer, const std::vector<std::string>& stop, Form form,
                         std::int64_t texts, std::int64_t samples)
    : form_(form), samples_(samples) {
  for (std::int64_t i = 0; i < texts; ++i) texts_.push_back({ShownText(tokenizer, stop), {}});
  if (texts > 0) print(title(0));
}

std::string TextsOutput::title(std::int64_t text) const {
  if (form_ != Form::titled) return "";
  const std::string sample = samples_ > 1 ? fmt::format(", sample {}", text % samples_ + 1) : "";
  return fmt::format("==> prompt {}{} <==\n", text / samples_ + 1, sample);
}

void TextsOutput::print_turn(const std::string& part) {
  if (part.empty()) return;
  print_written(part);
  line_open_ = part.back() != '\n';
}

void TextsOutput::show(std::int64_t text, const std::string& part) {
  if (text == turn_ && form_ != Form::json) return print_turn(part);
  texts_[static_cast<std::size_t>(text)].waiting += part;
}

bool TextsOutput::push(std::int64_t text, std::int32_t token) {
  ShownText& shown = texts_[static_cast<std::size_t>(text)].shown;
  show(text, shown.push(token));
  return !shown.stopped();
}

void TextsOutput::end(std::int64_t text, const qkv::GenerateResult& result) {
  Text& of = texts_[static_cast<std::size_t>(text)];
  show(text, of.shown.finish());
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
  line["stopped"] = stop_reason_name(result.reason, of.shown.stopped());
  return line.dump() + "\n";
}

std::string stop_reason_name(qkv::StopReason reason, bool stopped) {
  switch (reason) {
    case qkv::StopReason::context_full:
      return "context_full";
    case qkv::StopReason::end_token:
      return "end_token";
    case qkv::StopReason::callback:
      return stopped ? "stop_string" : "interrupted";
    case qkv::StopReason::max_tokens:
      break;
  }
  return stopped ? "stop_string" : "max_tokens";
}

}  // namespace qkv::cli
