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

// A literal value, not a placeholder: "bottom-right", not "FILE" or "bpe:SIZE".
bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

// "top-left|start" and "bytes|bpe:SIZE|FILE" list the possible values.
std::vector<std::string> words_of(const std::string& value) {
  std::vector<std::string> words;
  if (value.find('|') == std::string::npos) return words;
  for (const std::string& part : split(value, '|')) {
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

// The type name of CLI11 in readable form: "N:INT in [1 - 4096]" is N, "TYPE:{f32,bf16}" is f32|bf16.
std::string value_name(std::string type) {
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    type = type.substr(open + 1, close - open - 1);
    std::replace(type.begin(), type.end(), ',', '|');
    return type;
  }
  for (const char* kind : {":INT", ":UINT", ":FLOAT", ":POSITIVE", ":NONNEGATIVE", ":NUMBER"})
    type = type.substr(0, type.find(kind));
  if (type.starts_with("INT") || type.starts_with("UINT") || type == "POSITIVE" || type == "NONNEGATIVE") return "N";
  return type.starts_with("FLOAT") ? "X" : type;
}

// The short names and the first long one, with its negation; other long names are aliases that help does not show.
std::vector<std::string> visible_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  const std::vector<std::string>& all = option.get_lnames();
  for (const std::string& name : all)
    if (name == all.front() || name == "no-" + all.front()) names.push_back("--" + name);
  return names;
}

OptionFacts facts_of_option(const CLI::Option& option) {
  OptionFacts facts;
  facts.names = visible_names(option);
  facts.group = option.get_group();
  facts.takes_value = option.get_items_expected_max() > 0;
  facts.description = option.get_description();
  facts.default_value = option.get_default_str();
  facts.required = option.get_required();
  if (facts.takes_value) {
    facts.value = value_name(option.get_type_name());
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
