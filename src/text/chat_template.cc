// SPDX-License-Identifier: Apache-2.0
#include "qkv/chat_template.h"

#include <algorithm>
#include <stdexcept>

#include "text/tokenizer_data.h"

namespace qkv {
namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin));
}

}  // namespace

ChatTemplate::ChatTemplate(ChatForm form, const Tokenizer& tokenizer) : form_(form), tokenizer_(tokenizer) {
  switch (form_) {
    case ChatForm::chatml:
      ends_ = {control("<|im_end|>")};
      controls_ = {control("<|im_start|>")};
      break;
    case ChatForm::llama3:
      ends_ = {control("<|eot_id|>")};
      controls_ = {control("<|begin_of_text|>"), control("<|start_header_id|>"), control("<|end_header_id|>")};
      break;
    case ChatForm::llama2:
      ends_ = {control("</s>")};
      controls_ = {control("<s>")};
      break;
    case ChatForm::zephyr:
      if (tokenizer.end_token() < 0)
        throw std::invalid_argument("[chat] the template zephyr expected a tokenizer with an end token; found none");
      ends_ = {tokenizer.end_token()};
      break;
  }
  controls_.insert(controls_.end(), ends_.begin(), ends_.end());
  for (const AddedToken& token : tokenizer.data().added)
    if (token.special && std::find(controls_.begin(), controls_.end(), token.id) == controls_.end())
      controls_.push_back(token.id);
  for (const std::int32_t id : controls_) control_texts_.push_back(tokenizer.decode(id));
}

std::int32_t ChatTemplate::control(const std::string& text) const {
  for (const AddedToken& token : tokenizer_.data().added)
    if (token.content == text) return token.id;
  throw std::invalid_argument("[chat] the template " + std::string(chat_form_name(form_)) + " expected the token " +
                              text + "; found none in the tokenizer");
}

// A control token spelt out in what people say must stay letters, also where a tokenizer has it as a token that is cut
// out of every text: each spelling is cut after its first byte, and the parts are read one after the other.
void ChatTemplate::add_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto is_control = [&](std::int32_t id) {
    return std::find(controls_.begin(), controls_.end(), id) != controls_.end();
  };
  const auto add = [&](std::string_view part) {  // whether it could be
    const std::vector<std::int32_t> plain = tokenizer_.encode(part);
    const bool good = std::none_of(plain.begin(), plain.end(), is_control);
    if (good) ids.insert(ids.end(), plain.begin(), plain.end());
    return good;
  };
  if (add(text)) return;
  const auto begins_control = [&](std::size_t at) {
    return std::any_of(control_texts_.begin(), control_texts_.end(), [&](const std::string& spelling) {
      return spelling.size() > 1 && text.substr(at).starts_with(spelling);
    });
  };
  for (std::size_t begin = 0, at = 0; begin < text.size(); ++at) {
    if (at + 1 < text.size() && !begins_control(at)) continue;
    if (!add(text.substr(begin, at + 1 - begin)))
      throw std::invalid_argument("[chat] expected words that become no control token; found some");
    begin = at + 1;
  }
}

std::vector<std::int32_t> ChatTemplate::ids(const std::vector<Piece>& pieces) const {
  std::vector<std::int32_t> result;
  std::string text;
  const auto flush = [&] {
    if (!text.empty()) add_text(text, result);
    text.clear();
  };
  for (const Piece& piece : pieces) {
    if (piece.control) {
      flush();
      result.push_back(control(piece.text));
    } else {
      text += piece.text;
    }
  }
  flush();
  return result;
}

std::vector<ChatTemplate::Piece> ChatTemplate::message(std::string_view role, std::string_view words) const {
  const std::string who(role);
  switch (form_) {
    case ChatForm::chatml:
      return {{true, "<|im_start|>"}, {false, who + "\n" + std::string(words)}, {true, "<|im_end|>"}, {false, "\n"}};
    case ChatForm::llama3:
      return {{true, "<|start_header_id|>"},
              {false, who},
              {true, "<|end_header_id|>"},
              {false, "\n\n" + trimmed(words)},
              {true, "<|eot_id|>"}};
    case ChatForm::zephyr:
      return {{false, "<|" + who + "|>\n" + std::string(words)},
              {true, tokenizer_.decode(tokenizer_.end_token())},
              {false, "\n"}};
    case ChatForm::llama2:
      break;
  }
  return {{false, "[INST] " + trimmed(words) + " [/INST]"}};
}

std::vector<std::int32_t> ChatTemplate::beginning(std::string_view system) const {
  std::vector<std::int32_t> result;
  if (form_ == ChatForm::llama2) {
    result = {control("<s>")};
  } else if (form_ == ChatForm::llama3) {
    result = {control("<|begin_of_text|>")};
  } else if (tokenizer_.begin_token() >= 0) {
    result = {tokenizer_.begin_token()};
  }
  if (system.empty() || form_ == ChatForm::llama2) return result;
  const std::vector<std::int32_t> more = ids(message("system", system));
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

std::vector<std::int32_t> ChatTemplate::question(std::string_view words, bool first, std::string_view system) const {
  if (form_ == ChatForm::llama2) {
    const bool with_system = first && !system.empty();
    const std::string before = with_system ? "<<SYS>>\n" + trimmed(system) + "\n<</SYS>>\n\n" : "";
    return ids({{false, "[INST] " + before + trimmed(words) + " [/INST]"}});
  }
  std::vector<Piece> pieces = message("user", words);
  switch (form_) {
    case ChatForm::chatml:
      pieces.insert(pieces.end(), {{true, "<|im_start|>"}, {false, "assistant\n"}});
      break;
    case ChatForm::llama3:
      pieces.insert(
          pieces.end(),
          {{true, "<|start_header_id|>"}, {false, "assistant"}, {true, "<|end_header_id|>"}, {false, "\n\n"}});
      break;
    default:
      pieces.push_back({false, "<|assistant|>\n"});
  }
  return ids(pieces);
}

std::vector<std::int32_t> ChatTemplate::answer_end() const {
  std::vector<std::int32_t> result = ends_;
  if (form_ == ChatForm::llama2) result.push_back(control("<s>"));
  if (form_ == ChatForm::chatml || form_ == ChatForm::zephyr) add_text("\n", result);
  return result;
}

}  // namespace qkv
