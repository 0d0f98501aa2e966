// SPDX-License-Identifier: Apache-2.0
#include "command_facts.h"

#include <algorithm>
#include <string_view>

namespace qkv::cli {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// A value that is written as it stands, and not a name for one: "bottom-right", not "FILE" or "bpe:SIZE".
bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

// "TEXT:{top-left,start}" and "bytes|bpe:SIZE|FILE" list what a value may be.
std::vector<std::string> words_of(const std::string& value) {
  std::vector<std::string> words;
  const std::size_t open = value.find('{'), close = value.find('}');
  const bool set = open != std::string::npos && close != std::string::npos && open < close;
  if (!set && value.find('|') == std::string::npos) return words;
  for (const std::string& part : set ? split(value.substr(open + 1, close - open - 1), ',') : split(value, '|')) {
    if (is_word(part)) words.push_back(part);
  }
  return words;
}

bool names_path(const std::string& value) {
  for (const char* name : {"FILE", "DIR", "MODEL", "PATH", "NPY", "TEXT.json", "TRACE"}) {
    if (value.find(name) != std::string::npos) return true;
  }
  return false;
}

OptionFacts facts_of_option(const CLI::Option& option) {
  OptionFacts facts;
  for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  facts.group = option.get_group();
  facts.takes_value = option.get_items_expected_max() > 0;
  facts.description = option.get_description();
  facts.default_value = option.get_default_str();
  facts.required = option.get_required();
  if (facts.takes_value) {
    facts.value = option.get_type_name();
    facts.words = words_of(facts.value);
    facts.takes_paths = facts.words.empty() ? names_path(facts.value) || facts.names.empty() : names_path(facts.value);
    if (facts.value.empty()) facts.value = "VALUE";
  }
  return facts;
}

void append(const CommandFacts& command, std::vector<const CommandFacts*>& list) {
  list.push_back(&command);
  for (const CommandFacts& below : command.subcommands) append(below, list);
}

}  // namespace

CommandFacts facts_of(const CLI::App& app, const std::string& path) {
  CommandFacts facts{path, app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) facts.options.push_back(facts_of_option(*option));
  }
  for (const CLI::App* below : app.get_subcommands({})) {
    if (below->get_group().empty()) continue;
    if (!below->get_name().empty()) {
      facts.subcommands.push_back(facts_of(*below, path + " " + below->get_name()));
    } else {  // a group of options
      for (OptionFacts& option : facts_of(*below, path).options) facts.options.push_back(std::move(option));
    }
  }
  return facts;
}

std::vector<const CommandFacts*> all_commands(const CommandFacts& top) {
  std::vector<const CommandFacts*> list;
  append(top, list);
  return list;
}

}  // namespace qkv::cli
