// SPDX-License-Identifier: Apache-2.0
// What the command line's definitions say of each command and option, for those who write it down elsewhere: manual
// pages and completions of shells. There is no second list to keep true.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace qkv::cli {

struct OptionFacts {
  std::vector<std::string> names;  // "-t", "--threads"; empty: a word that stands by itself
  std::string group;
  std::string value;  // the placeholder in --help, "FILE"; empty: a flag
  std::string description, default_value;
  bool takes_value = false;
  bool required = false;
  bool takes_paths = false;        // its value may be a file or directory
  std::vector<std::string> words;  // the values that it may have, as far as they can be listed
};

struct CommandFacts {
  std::string path;  // "qkv bench peak"
  std::string description, footer;
  std::vector<OptionFacts> options;       // in the order of --help
  std::vector<CommandFacts> subcommands;  // in the order of --help
};

CommandFacts facts_of(const CLI::App& app, const std::string& path = "qkv");

// The command and all below it, itself first.
std::vector<const CommandFacts*> all_commands(const CommandFacts& top);

}  // namespace qkv::cli
