// SPDX-License-Identifier: Apache-2.0
#include "qkv/conversation.h"

#include <stdexcept>
#include <utility>

namespace qkv {

Conversation::Conversation(ChatTemplate form, std::string system)
    : template_(std::move(form)), system_(std::move(system)) {
  reset();
}

void Conversation::ask(std::string_view words) {
  append(template_.question(words, !asked_, current_system_));
  asked_ = true;
}

void Conversation::answer(std::string_view words) {
  append(template_.answer(words));
  append(template_.answer_end());
}

void Conversation::answered(std::vector<std::int32_t> context) {
  tokens_ = std::move(context);
  append(template_.answer_end());
}

void Conversation::assign(std::span<const ChatMessage> messages) {
  const bool has_system = !messages.empty() && messages.front().role == "system";
  const std::span<const ChatMessage> said = messages.subspan(has_system ? 1 : 0);
  for (std::size_t i = 0; i < said.size(); ++i) {
    const char* expected = i % 2 == 0 ? "user" : "assistant";
    if (said[i].role != expected)
      throw std::invalid_argument(std::string("[chat] expected alternating user and assistant messages, here ") +
                                  expected + "; found '" + said[i].role + "'");
  }
  if (said.size() % 2 == 0)
    throw std::invalid_argument("[chat] expected the last message to be from the user; found none");
  begin(has_system ? messages.front().text : system_);
  for (const ChatMessage& message : said) message.role == "user" ? ask(message.text) : answer(message.text);
}

void Conversation::reset() { begin(system_); }

void Conversation::begin(const std::string& system) {
  tokens_ = template_.beginning(system);
  current_system_ = system;
  asked_ = false;
}

void Conversation::append(const std::vector<std::int32_t>& ids) {
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
}

}  // namespace qkv
