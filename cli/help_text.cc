// SPDX-License-Identifier: Apache-2.0
#include "help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "cli.h"

namespace qkv::cli {
namespace {

constexpr std::size_t kColumn = 30;     // start column of descriptions
constexpr std::size_t kWideValue = 24;  // a longer list of values moves into the description

// The text wrapped to `width` columns, every line after the first indented by `indent`.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent, std::size_t column) {
  std::istringstream words(text);
  std::string result, word;
  for (bool first = true; words >> word; first = false) {
    if (!first && column + 1 + word.size() > width) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::string entry(const std::string& names, const std::string& description, std::size_t width) {
  const bool fits = names.size() + 2 <= kColumn;
  const std::string gap = fits ? std::string(kColumn - names.size(), ' ') : "\n" + std::string(kColumn, ' ');
  return names + (description.empty() ? "" : gap + wrapped(description, width, kColumn, kColumn)) + "\n";
}

// "--[no-]norm-gain" for a flag with its negation.
std::string names_of(const OptionFacts& option) {
  std::vector<std::string> names = option.names;
  if (names.size() >= 2 && names.back() == "--no-" + names[names.size() - 2].substr(2)) {
    const std::string name = names[names.size() - 2].substr(2);
    names.resize(names.size() - 2);
    names.push_back("--[no-]" + name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.starts_with("--") ? "    " + text : text;
}

std::string option_entry(const OptionFacts& option, std::size_t width) {
  std::string value = option.value, description = option.description;
  if (value.size() > kWideValue && option.words.size() > 1) {
    std::string words;
    for (const std::string& word : option.words) words += (words.empty() ? "" : ", ") + word;
    value = "NAME";
    description += ": " + words;
  }
  if (!option.default_value.empty() && description.find('[') == std::string::npos)
    description += " [" + option.default_value + "]";
  if (option.required) description += " (required)";
  const std::string names = names_of(option);
  const std::string joint = names.empty() || value.empty() ? "" : " ";
  return entry("  " + names + joint + value, description, width);
}

std::string options_text(const CommandFacts& command, std::size_t width) {
  std::vector<std::string> groups;
  for (const OptionFacts& option : command.options)
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  std::string text;
  for (const std::string& group : groups) {
    text += "\n" + group + ":\n";
    for (const OptionFacts& option : command.options)
      if (option.group == group) text += option_entry(option, width);
  }
  return text;
}

// Wraps paragraphs; indented lines are unchanged.
std::string footer_text(const std::string& footer, std::size_t width) {
  std::istringstream lines(footer);
  std::string text, paragraph, line;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) text += wrapped(paragraph, width, 0, 0) + "\n";
    paragraph.clear();
  };
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] == ' ') {
      end_paragraph();
      text += line + "\n";
    } else {
      paragraph += line + " ";
    }
  }
  end_paragraph();
  return text;
}

}  // namespace

std::size_t help_width() {
  winsize size{};
  if (!output_is_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::clamp<std::size_t>(size.ws_col, 50, 120);
}

std::string help_text(const CommandFacts& command, std::size_t width) {
  std::string text = wrapped(command.description, width, 0, 0) + "\n\nUsage: " + command.path;
  if (!command.subcommands.empty()) text += " COMMAND";
  text += " [OPTIONS]";
  for (const OptionFacts& option : command.options)
    if (option.names.empty()) text += " " + (option.required ? option.value : "[" + option.value + "]");
  text += "\n";
  if (!command.subcommands.empty()) {
    text += "\nCommands:\n";
    for (const CommandFacts& below : command.subcommands)
      text += entry("  " + below.path.substr(command.path.size() + 1), below.description, width);
  }
  text += options_text(command, width);
  if (!command.footer.empty()) text += footer_text(command.footer, width);
  return text;
}

}  // namespace qkv::cli
