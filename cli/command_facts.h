// SPDX-License-Identifier: Apache-2.0
// Every command and option as data, taken from the command-line definitions: the single source for manual pages and
// shell completion.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace qkv::cli {

struct OptionFacts {
  std::vector<std::string> names;  // "-t", "--threads"; empty: a positional argument
  std::string group;
  std::string value;  // placeholder of the value in --help, "FILE"; empty: a flag
  std::string description, default_value;
  bool takes_value = false;
  bool required = false;
  bool takes_paths = false;        // the value may be a file or directory
  std::vector<std::string> words;  // the possible values that can be listed
};

struct CommandFacts {
  std::string path;  // "qkv bench peak"
  std::string description, footer;
  std::vector<OptionFacts> options;       // in the order of --help
  std::vector<CommandFacts> subcommands;  // in the order of --help
};

CommandFacts facts_of(const CLI::App& app, const std::string& path = "qkv");

// The command and all its subcommands, itself first.
std::vector<const CommandFacts*> all_commands(const CommandFacts& top);

}  // namespace qkv::cli
