// SPDX-License-Identifier: Apache-2.0
// A chat conversation as model input tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/chat_template.h"

namespace qkv {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string text;
};

// Extended by one question and one answer at a time. Each prompt starts with the tokens of the previous one, so an
// engine with a prefix cache only evaluates the new tokens. Throws std::invalid_argument when its template does
// (ChatTemplate).
class Conversation {
 public:
  // system: the system message; empty: none.
  explicit Conversation(ChatTemplate form, std::string system = "");

  void ask(std::string_view words);                  // tokens() is then the prompt for an answer
  void answer(std::string_view words);               // given as text
  void answered(std::vector<std::int32_t> context);  // generated: GenerateResult::context
  // Replaces the conversation with the given messages: at most one system message, first, then user and assistant
  // alternating, ending with the user. Without a system message, the constructor's is used.
  void assign(std::span<const ChatMessage> messages);
  void reset();  // back to the system message

  const std::vector<std::int32_t>& tokens() const noexcept { return tokens_; }
  const std::vector<std::int32_t>& end_tokens() const noexcept { return template_.end_tokens(); }  // of an answer

 private:
  void begin(const std::string& system);
  void append(const std::vector<std::int32_t>& ids);

  ChatTemplate template_;
  std::string system_, current_system_;
  std::vector<std::int32_t> tokens_;
  bool asked_ = false;
};

}  // namespace qkv
