// SPDX-License-Identifier: Apache-2.0
// Converts conversations to tokens, for models trained on conversations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"

namespace qkv {

// The supported chat templates and the text they put around messages (control tokens in <>):
//   chatml   <|im_start|>user\nWORDS<|im_end|>\n                                        SmolLM2, Qwen and many others
//   llama2   <s>[INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nWORDS [/INST] ANSWER</s>             LLaMA 2
//   llama3   <|start_header_id|>user<|end_header_id|>\n\nWORDS<|eot_id|>                LLaMA 3
//   zephyr   <|user|>\nWORDS</s>\n (its end token; <|user|> is text)                     Zephyr, TinyLlama
// and those of Mistral's models, <s>[INST] WORDS [/INST]ANSWER</s> with different spacing. [INST] and [/INST] are
// control tokens if the tokenizer has them, else text:
//   mistral_v0_1    [INST] WORDS [/INST]ANSWER</s> [INST] WORDS [/INST]
//   mistral_v0_2    [INST] WORDS [/INST]ANSWER</s>[INST] WORDS [/INST]
//   mistral_v1       [INST] SYSTEM\n\nWORDS [/INST] ANSWER</s> [INST] WORDS [/INST]
//   mistral_v3      [INST] WORDS[/INST] ANSWER</s>[INST] WORDS[/INST]
//   mistral_tekken  [INST]WORDS[/INST]ANSWER</s>[INST]WORDS[/INST]
// v0 templates have no system message. v3 and tekken move it to the latest question each time, which changes the
// preceding tokens; that does not work with a growing KV cache, so system messages are rejected for them.
enum class ChatForm : std::uint8_t {
  chatml,
  llama2,
  llama3,
  zephyr,
  mistral_v0_1,
  mistral_v0_2,
  mistral_v1,
  mistral_v3,
  mistral_tekken
};
std::string_view chat_form_name(ChatForm form) noexcept;
std::string chat_form_names();                        // "chatml, llama2, ... or mistral-tekken"
ChatForm chat_form_from_name(std::string_view name);  // throws std::invalid_argument, listing the names
// The form of a Jinja template, recognized by the markers in it; nullopt if it is none of these.
std::optional<ChatForm> recognise_chat_form(std::string_view jinja);
// The default system message of a Jinja template, if it is a literal; else empty.
std::string default_system_message(std::string_view jinja);

// Encodes the messages of one conversation. The template's control tokens become their ids; message text is always
// plain text, even if it spells out a control token. Thread-safe.
class ChatTemplate {
 public:
  // Throws std::invalid_argument if the tokenizer does not have the form's control tokens.
  ChatTemplate(ChatForm form, const Tokenizer& tokenizer);

  // The start of a conversation: the system message (empty: none). For llama2 and mistral_v1, which put it in the first
  // question, only the begin token. Throws std::invalid_argument for a system message that the form does not support.
  std::vector<std::int32_t> beginning(std::string_view system) const;
  // A question, up to the start of the answer. first: the first question; `system` as in beginning().
  std::vector<std::int32_t> question(std::string_view words, bool first, std::string_view system) const;
  // An answer given as text, after a question and before answer_end().
  std::vector<std::int32_t> answer(std::string_view words) const;
  // The tokens after an answer.
  std::vector<std::int32_t> answer_end() const;
  // The tokens with which a model ends its answer.
  const std::vector<std::int32_t>& end_tokens() const noexcept { return ends_; }

 private:
  struct Piece {
    bool control;
    std::string text;
  };
  enum class Before : std::uint8_t { nothing, control, text };  // what precedes the pieces or the text
  std::vector<std::int32_t> ids(const std::vector<Piece>& pieces, Before before) const;
  void add_text(std::string_view text, Before before, std::vector<std::int32_t>& ids) const;
  std::vector<Piece> bracketed(std::string_view words, bool first, std::string_view system) const;
  std::int32_t control(const std::string& text) const;
  bool is_token(std::string_view text) const;
  std::vector<Piece> message(std::string_view role, std::string_view words) const;

  ChatForm form_;
  Tokenizer tokenizer_;
  std::vector<std::int32_t> ends_;
  std::vector<std::int32_t> controls_;      // that message text must not produce
  std::vector<std::string> control_texts_;  // [controls]
};

}  // namespace qkv
