// SPDX-License-Identifier: Apache-2.0
// How a conversation becomes tokens, for models that were trained on conversations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"

namespace qkv {

// The forms of conversation that are known, each with what it puts around the words (control tokens in <>):
//   chatml   <|im_start|>user\nWORDS<|im_end|>\n                                        SmolLM2, Qwen and many others
//   llama2   <s>[INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nWORDS [/INST] ANSWER</s>             LLaMA 2
//   llama3   <|start_header_id|>user<|end_header_id|>\n\nWORDS<|eot_id|>                LLaMA 3
//   zephyr   <|user|>\nWORDS</s>\n (its end token; <|user|> is text)                     Zephyr, TinyLlama
// and those of Mistral's models, <s>[INST] WORDS [/INST]ANSWER</s> but for the spaces. [INST] and [/INST] are control
// tokens where the tokenizer has them, else text:
//   mistral_v0_1    [INST] WORDS [/INST]ANSWER</s> [INST] WORDS [/INST]
//   mistral_v0_2    [INST] WORDS [/INST]ANSWER</s>[INST] WORDS [/INST]
//   mistral_v1       [INST] SYSTEM\n\nWORDS [/INST] ANSWER</s> [INST] WORDS [/INST]
//   mistral_v3      [INST] WORDS[/INST] ANSWER</s>[INST] WORDS[/INST]
//   mistral_tekken  [INST]WORDS[/INST]ANSWER</s>[INST]WORDS[/INST]
// Those of v0 have no system message. v3 and tekken move it on to the latest question each time, so that the text
// before changes; a conversation that is read on cannot do that, and they are refused one.
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
ChatForm chat_form_from_name(std::string_view name);  // throws std::invalid_argument that lists the names
// The form of a Jinja template, told by the marks in it; nothing if it is none of these.
std::optional<ChatForm> recognise_chat_form(std::string_view jinja);
// The system message that a Jinja template gives when there is none, if it has one in plain letters; else empty.
std::string default_system_message(std::string_view jinja);

// Turns the messages of one conversation into ids, control tokens as themselves; what people say is text whatever
// stands in it, so a control token spelt out there is read as letters. Any number of threads may use one.
class ChatTemplate {
 public:
  // Throws std::invalid_argument if the tokenizer has not the control tokens of the form.
  ChatTemplate(ChatForm form, const Tokenizer& tokenizer);

  // The beginning of a conversation: the system message (empty: none). For llama2, which has it in the first question,
  // it is empty but for the begin token; so it is for mistral_v1. Throws std::invalid_argument for a system message
  // that the form has no place for.
  std::vector<std::int32_t> beginning(std::string_view system) const;
  // A question, up to where the answer begins. first: nothing was asked before, and `system` is that of beginning().
  std::vector<std::int32_t> question(std::string_view words, bool first, std::string_view system) const;
  // An answer given as text, after a question and before answer_end().
  std::vector<std::int32_t> answer(std::string_view words) const;
  // What stands after an answer.
  std::vector<std::int32_t> answer_end() const;
  // The tokens by which a model ends its answer.
  const std::vector<std::int32_t>& end_tokens() const noexcept { return ends_; }

 private:
  struct Piece {
    bool control;
    std::string text;
  };
  enum class Before : std::uint8_t { nothing, control, text };  // what stands before pieces, or a text
  std::vector<std::int32_t> ids(const std::vector<Piece>& pieces, Before before) const;
  void add_text(std::string_view text, Before before, std::vector<std::int32_t>& ids) const;
  std::vector<Piece> bracketed(std::string_view words, bool first, std::string_view system) const;
  std::int32_t control(const std::string& text) const;
  bool is_token(std::string_view text) const;
  std::vector<Piece> message(std::string_view role, std::string_view words) const;

  ChatForm form_;
  Tokenizer tokenizer_;
  std::vector<std::int32_t> ends_;
  std::vector<std::int32_t> controls_;      // that no words may become
  std::vector<std::string> control_texts_;  // [controls]
};

}  // namespace qkv
