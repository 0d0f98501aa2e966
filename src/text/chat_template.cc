// SPDX-License-Identifier: Apache-2.0
#include "qkv/chat_template.h"

#include <algorithm>
#include <optional>
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

constexpr std::string_view kOpen = "[INST]", kClose = "[/INST]";

bool is_mistral(ChatForm form) noexcept { return form >= ChatForm::mistral_v0_1; }
bool system_in_question(ChatForm form) noexcept { return form == ChatForm::llama2 || form == ChatForm::mistral_v1; }

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
    case ChatForm::mistral_v0_1:
    case ChatForm::mistral_v0_2:
    case ChatForm::mistral_v1:
    case ChatForm::mistral_v3:
    case ChatForm::mistral_tekken:
      ends_ = {control("</s>")};
      controls_ = {control("<s>")};
      for (const AddedToken& token : tokenizer.data().added)
        if (token.content == kOpen || token.content == kClose) controls_.push_back(token.id);
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

bool ChatTemplate::is_token(std::string_view text) const {
  const auto& added = tokenizer_.data().added;
  return std::any_of(added.begin(), added.end(), [&](const AddedToken& token) { return token.content == text; });
}

// A control token spelt out in user text must stay text, even if the tokenizer cuts it out of every text: each spelling
// is split after its first byte, and the parts are encoded separately. Tokenizers that prepend a space do so at the
// start of a text and, with some exceptions, after a control token.
void ChatTemplate::add_text(std::string_view text, Before before, std::vector<std::int32_t>& ids) const {
  const TokenizerData& data = tokenizer_.data();
  const bool once = data.characters && data.space_prefix == SpacePrefix::first_unless_there;
  bool continues = before == Before::text || (before == Before::control && once);
  std::optional<TextEncoder> encoder;
  const auto is_control = [&](std::int32_t id) {
    return std::find(controls_.begin(), controls_.end(), id) != controls_.end();
  };
  const auto add = [&](std::string_view part) {  // returns whether the part has no control tokens
    std::vector<std::int32_t> plain;
    if (continues && data.add_prefix_space) {
      if (!encoder) encoder.emplace(tokenizer_);
      encoder->encode(part, plain, SpecialTokens::as_text, true);
    } else {
      plain = tokenizer_.encode(part);
    }
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
      throw std::invalid_argument(
          "[chat] expected a text that can be encoded without control tokens; found one that cannot");
    begin = at + 1;
    continues = true;
  }
}

std::vector<std::int32_t> ChatTemplate::ids(const std::vector<Piece>& pieces, Before before) const {
  std::vector<std::int32_t> result;
  std::string text;
  const auto flush = [&] {
    if (!text.empty()) add_text(text, result.empty() ? before : Before::control, result);
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
    default:  // Mistral and llama2 messages: see question()
      return {};
  }
}

// A user message in Mistral's formats.
std::vector<ChatTemplate::Piece> ChatTemplate::bracketed(std::string_view words, bool first,
                                                         std::string_view system) const {
  const bool before = form_ == ChatForm::mistral_v1 || (form_ == ChatForm::mistral_v0_1 && !first);
  const std::string after = form_ == ChatForm::mistral_tekken ? "" : " ";
  const std::string last = form_ == ChatForm::mistral_tekken || form_ == ChatForm::mistral_v3 ? "" : " ";
  const std::string said = first && !system.empty() ? std::string(system) + "\n\n" : "";
  return {{false, before ? " " : ""},
          {is_token(kOpen), std::string(kOpen)},
          {false, after + said + std::string(words) + last},
          {is_token(kClose), std::string(kClose)}};
}

std::vector<std::int32_t> ChatTemplate::beginning(std::string_view system) const {
  std::vector<std::int32_t> result;
  if (form_ == ChatForm::llama2 || is_mistral(form_)) {
    result = {control("<s>")};
  } else if (form_ == ChatForm::llama3) {
    result = {control("<|begin_of_text|>")};
  } else if (tokenizer_.begin_token() >= 0) {
    result = {tokenizer_.begin_token()};
  }
  if (system.empty() || system_in_question(form_)) return result;
  if (is_mistral(form_))
    throw std::invalid_argument("[chat] the template " + std::string(chat_form_name(form_)) +
                                "expected no system message, which it cannot keep across messages; put it in the first "
                                "question");
  const std::vector<std::int32_t> more =
      ids(message("system", system), result.empty() ? Before::nothing : Before::control);
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

std::vector<std::int32_t> ChatTemplate::question(std::string_view words, bool first, std::string_view system) const {
  if (form_ == ChatForm::llama2) {
    const bool with_system = first && !system.empty();
    const std::string before = with_system ? "<<SYS>>\n" + trimmed(system) + "\n<</SYS>>\n\n" : "";
    return ids({{false, "[INST] " + before + trimmed(words) + " [/INST]"}}, Before::control);
  }
  if (is_mistral(form_)) return ids(bracketed(words, first, system), Before::control);
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
  if (!first || !system.empty()) return ids(pieces, Before::text);  // line end after a message
  return ids(pieces, tokenizer_.begin_token() < 0 ? Before::nothing : Before::control);
}

std::vector<std::int32_t> ChatTemplate::answer(std::string_view words) const {
  const bool spaced = form_ == ChatForm::llama2 || form_ == ChatForm::mistral_v1 || form_ == ChatForm::mistral_v3;
  const bool trims = form_ == ChatForm::llama2 || form_ == ChatForm::llama3 || form_ == ChatForm::mistral_v3;
  std::string text = spaced ? " " : "";
  text += trims ? trimmed(words) : std::string(words);
  if (form_ == ChatForm::llama2) text += ' ';
  const bool after_control = is_mistral(form_) && is_token(kClose);
  return ids({{false, text}}, after_control ? Before::control : Before::text);
}

std::vector<std::int32_t> ChatTemplate::answer_end() const {
  std::vector<std::int32_t> result = ends_;
  if (form_ == ChatForm::llama2) result.push_back(control("<s>"));
  if (form_ == ChatForm::chatml || form_ == ChatForm::zephyr) add_text("\n", Before::control, result);
  return result;
}

}  // namespace qkv
