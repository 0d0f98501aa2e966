// SPDX-License-Identifier: Apache-2.0
#include "chat_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "line_reader.h"
#include "nearest_word.h"

namespace qkv::cli {
namespace {

struct CommandText {
  ChatCommand command;
  std::string name;
  const char* help;
};
const std::vector<CommandText>& commands() {
  static const std::vector<CommandText> list = {{ChatCommand::reset, "/reset", "start a new conversation"},
                                                {ChatCommand::exit, "/exit", "exit (also Ctrl-D)"},
                                                {ChatCommand::help, "/help", "show this help"}};
  return list;
}

std::string trimmed(const std::string& line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t") + 1 - first);
}

}  // namespace

std::string chat_help() {
  std::string text;
  for (const CommandText& command : commands()) text += fmt::format("  {:<8}{}\n", command.name, command.help);
  text += "Ctrl-C stops a reply; at the prompt it exits.\n";
  if (has_line_editing()) text += "Up and Down recall previous lines, Ctrl-R searches them.\n";
  return text;
}

bool is_chat_command(const std::string& line) {
  return line.starts_with('/') && line.find('/', 1) >= std::min(line.find_first_of(" \t"), line.size());
}

ChatCommand chat_command_from(const std::string& line) {
  const std::string words = trimmed(line), name = words.substr(0, words.find_first_of(" \t"));
  std::vector<std::string> names;
  std::string list;
  for (const CommandText& command : commands()) {
    if (words == command.name) return command.command;
    if (name == command.name) throw UnknownChatCommand(name + " takes no arguments; found '" + words + "'");
    names.push_back(command.name);
    list += (list.empty() ? "" : ", ") + command.name;
  }
  const std::string nearest = nearest_word(name, names);
  throw UnknownChatCommand("unknown command '" + name + "'" +
                           (nearest.empty() ? "" : "; did you mean " + nearest + "?") + " (commands: " + list +
                           "; to send it as text, put a space before it)");
}

}  // namespace qkv::cli
