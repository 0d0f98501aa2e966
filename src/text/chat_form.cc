// SPDX-License-Identifier: Apache-2.0
// Recognises chat templates. A Jinja template is a program, but those in use follow a few formats, which can be
// identified by the marker strings they contain.
#include <array>
#include <stdexcept>
#include <utility>

#include "qkv/chat_template.h"

namespace qkv {
namespace {

constexpr std::array<std::pair<ChatForm, std::string_view>, 9> kForms = {
    {{ChatForm::chatml, "chatml"},
     {ChatForm::llama2, "llama2"},
     {ChatForm::llama3, "llama3"},
     {ChatForm::zephyr, "zephyr"},
     {ChatForm::mistral_v0_1, "mistral-v0.1"},
     {ChatForm::mistral_v0_2, "mistral-v0.2"},
     {ChatForm::mistral_v1, "mistral-v1"},
     {ChatForm::mistral_v3, "mistral-v3"},
     {ChatForm::mistral_tekken, "mistral-tekken"}}};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Whether a text is a string literal of a Jinja template, in either kind of quotes.
bool has_string(std::string_view jinja, std::string_view text) {
  for (std::size_t at = jinja.find(text); at != std::string_view::npos; at = jinja.find(text, at + 1)) {
    const char quote = at > 0 ? jinja[at - 1] : ' ';
    const std::size_t end = at + text.size();
    if ((quote == '\'' || quote == '"') && end < jinja.size() && jinja[end] == quote) return true;
  }
  return false;
}

// Identifies Mistral's templates, which differ only in spaces, by the string literals around the words.
std::optional<ChatForm> recognise_mistral(std::string_view jinja) {
  for (const char* other : {"<<SYS>>", "[SYSTEM_PROMPT]", "bos_token + '[INST]", "bos_token + \"[INST]",
                            "' ' + eos_token", "\" \" + eos_token"})
    if (has(jinja, other)) return std::nullopt;
  if (!has(jinja, "eos_token")) return std::nullopt;
  const bool bare = has_string(jinja, "[INST]"), spaced = has_string(jinja, "[INST] "),
             between = has_string(jinja, " [INST] ");
  const bool close = has_string(jinja, "[/INST]"), space_close = has_string(jinja, " [/INST]");
  if (bare + spaced + between != 1 || close + space_close != 1) return std::nullopt;
  if (close && !between) return bare ? ChatForm::mistral_tekken : ChatForm::mistral_v3;
  if (close || bare) return std::nullopt;
  const bool space_after = has(jinja, "eos_token + ' '") || has(jinja, "eos_token + \" \"");
  if (between) return space_after ? std::nullopt : std::optional(ChatForm::mistral_v1);
  return space_after ? ChatForm::mistral_v0_1 : ChatForm::mistral_v0_2;
}

// Resolves escape sequences in a Jinja string; std::nullopt for anything unsupported.
std::optional<std::string> unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    const std::string_view from = "nt'\"\\", to = "\n\t'\"\\";
    const std::size_t which = from.find(text[i]);
    if (which == std::string_view::npos) return std::nullopt;
    result += to[which];
  }
  return result;
}

}  // namespace

std::string_view chat_form_name(ChatForm form) noexcept { return kForms[static_cast<std::size_t>(form)].second; }

std::string chat_form_names() {
  std::string names;
  for (std::size_t i = 0; i < kForms.size(); ++i) {
    names += i == 0 ? "" : i + 1 < kForms.size() ? ", " : " or ";
    names += kForms[i].second;
  }
  return names;
}

ChatForm chat_form_from_name(std::string_view name) {
  for (const auto& [form, known] : kForms)
    if (name == known) return form;
  throw std::invalid_argument("[chat] expected the template " + chat_form_names() + "; found '" + std::string(name) +
                              "'");
}

std::optional<ChatForm> recognise_chat_form(std::string_view jinja) {
  if (has(jinja, "<|im_start|>")) return ChatForm::chatml;
  if (has(jinja, "<|start_header_id|>")) return ChatForm::llama3;
  if (has(jinja, "[INST]") && has(jinja, "<<SYS>>")) return ChatForm::llama2;
  const bool turns = has(jinja, "<|user|>") || (has(jinja, "'<|'") && has(jinja, "'|>"));
  if (turns && has(jinja, "<|assistant|>") && has(jinja, "eos_token") && !has(jinja, "<|end|>"))
    return ChatForm::zephyr;
  return recognise_mistral(jinja);
}

// For ChatML: the text between <|im_start|>system and <|im_end|>, if it is plain text in a single string.
std::string default_system_message(std::string_view jinja) {
  constexpr std::string_view kBegin = "<|im_start|>system", kEnd = "<|im_end|>";
  for (std::size_t at = jinja.find(kBegin); at != std::string_view::npos; at = jinja.find(kBegin, at + 1)) {
    const std::size_t end = jinja.find(kEnd, at);
    if (end == std::string_view::npos) break;
    at = jinja.rfind(kBegin, end);  // the nearest, so that each end is checked once
    const std::size_t begin = at + kBegin.size();
    const std::optional<std::string> text = unescaped(jinja.substr(begin, end - begin));
    if (!text || !text->starts_with('\n')) continue;
    // An unescaped quote ends the string; the rest is code.
    const std::string_view raw = jinja.substr(begin, end - begin);
    bool plain = true;
    for (std::size_t i = 0; i < raw.size(); ++i)
      if ((raw[i] == '\'' || raw[i] == '"' || raw[i] == '{') && (i == 0 || raw[i - 1] != '\\')) plain = false;
    if (plain) return text->substr(1);
  }
  return "";
}

}  // namespace qkv
