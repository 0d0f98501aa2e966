// SPDX-License-Identifier: Apache-2.0
// A conversation as the tokens that a model sees of it.
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

// Grows by a question and an answer at a time. Each prompt begins with the tokens of the one before, so an engine with
// a prefix cache evaluates only what is new. Throws std::invalid_argument where its template does (ChatTemplate).
class Conversation {
 public:
  // system: the system message; empty: none.
  explicit Conversation(ChatTemplate form, std::string system = "");

  void ask(std::string_view words);                  // tokens() are then the prompt for an answer
  void answer(std::string_view words);               // as text
  void answered(std::vector<std::int32_t> context);  // by a model: GenerateResult::context
  // Messages said elsewhere: at most one of the system, first, then of user and assistant in turn, the user's last. The
  // conversation begins again with them; without a system message it has the one that it was made with.
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
