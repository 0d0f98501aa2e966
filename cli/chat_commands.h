// SPDX-License-Identifier: Apache-2.0
// The commands of a conversation: /reset, /exit, /help.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace qkv::cli {

enum class ChatCommand : std::uint8_t { reset, exit, help };

class UnknownChatCommand : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string chat_help();

// Whether a line is a command: its first word starts with "/" and contains no other "/". "/etc/hosts is ..." is a
// question, and so is a line that starts with a space.
bool is_chat_command(const std::string& line);

// Throws UnknownChatCommand, which suggests the closest command and lists all.
ChatCommand chat_command_from(const std::string& line);

}  // namespace qkv::cli
