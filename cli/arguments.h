// SPDX-License-Identifier: Apache-2.0
// Command-line arguments before and after parsing: alternative option names, and errors that name what the user typed.
#pragma once

#include <string>
#include <vector>

#include "cli.h"

namespace qkv::cli {

// "max_iters" -> "max-iters".
std::string with_dashes(std::string name);

// Option names with dashes instead of underscores, "-n=3" as "-n 3", and names from other programs (--lr,
// --n-predict) as their qkv name. Values, and everything after a bare "--", are unchanged. Throws UsageError for an
// option of another program without a counterpart.
std::vector<std::string> normalise_arguments(const CLI::App& app, const std::vector<std::string>& arguments);

struct NamedCommand {
  const CLI::App* command;
  std::string path;  // "qkv bench peak"
};

// The command that the arguments select: `app` itself or a (nested) subcommand.
NamedCommand named_command(const CLI::App& app, const std::vector<std::string>& arguments);

// " (did you mean 'generate'?)", or "" if no known word is close.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// All problems of a command line that could not be parsed, in one line; `first` is the error that stopped parsing.
std::string problems(CLI::App& app, const CLI::ParseError& first);

// The message with members of the library replaced by options: "[sampler] top_p ..." becomes "--top-p ...".
std::string as_typed(const CLI::App& command, const std::string& message);

}  // namespace qkv::cli
