// SPDX-License-Identifier: Apache-2.0
// What is done with the words of a command line before and after they are parsed: other spellings of options, and
// errors that name what was typed.
#pragma once

#include <string>
#include <vector>

#include "cli.h"

namespace qkv::cli {

// "max_iters" -> "max-iters".
std::string with_dashes(std::string name);

// Option names with dashes instead of underscores, "-n=3" as "-n 3", and names that other programs use (--lr,
// --n-predict) under the name they have here. Values, and all words after a bare "--", are as they were. Throws
// UsageError for an option of another program that has no counterpart.
std::vector<std::string> normalise_arguments(const CLI::App& app, const std::vector<std::string>& arguments);

struct NamedCommand {
  const CLI::App* command;
  std::string path;  // "qkv bench peak"
};

// The command that the words name: `app` itself, a subcommand or one below it.
NamedCommand named_command(const CLI::App& app, const std::vector<std::string>& arguments);

// " (did you mean 'generate'?)", or "" if no word is near.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// All that is wrong with a command line that could not be parsed, in one line; `first` is what ended the parsing.
std::string problems(CLI::App& app, const CLI::ParseError& first);

// The message with options where the library names members: "[sampler] top_p ..." is "--top-p ...".
std::string as_typed(const CLI::App& command, const std::string& message);

}  // namespace qkv::cli
