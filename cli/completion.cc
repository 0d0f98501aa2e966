// SPDX-License-Identifier: Apache-2.0
// qkv completion: shell completion scripts, generated from the command-line definitions.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "command_facts.h"

namespace {

using qkv::cli::CommandFacts;
using qkv::cli::OptionFacts;

constexpr const char* kFooter = R"(
Examples
  source <(qkv completion bash)                              in this shell
  qkv completion zsh > _qkv                                  into a directory of $fpath
  qkv completion fish > ~/.config/fish/completions/qkv.fish)";

// In single quotes, where bash and zsh have no escapes, and fish has two.
std::string quoted(const std::string& text, const std::string& quote = "'\\''", const std::string& backslash = "\\") {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? quote : c == '\\' ? backslash : std::string(1, c == '\n' ? ' ' : c);
  return result + "'";
}

std::string quoted_for_fish(const std::string& text) { return quoted(text, "\\'", "\\\\"); }

std::string joined(const std::vector<std::string>& words, const char* separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

// The patterns of a case statement that match the path of each command.
std::string command_patterns(const std::vector<const CommandFacts*>& commands) {
  std::vector<std::string> patterns;
  for (const CommandFacts* command : commands) {
    if (command->path != "qkv") patterns.push_back("\"" + command->path + "\"");
  }
  return joined(patterns, "|");
}

// `"qkv train --data") ACTION ;;` for each option with a value.
template <class Action>
std::string value_cases(const std::vector<const CommandFacts*>& commands, const Action& action) {
  std::string text;
  for (const CommandFacts* command : commands) {
    for (const OptionFacts& option : command->options) {
      if (!option.takes_value || option.names.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back("\"" + command->path + " " + name + "\"");
      text += "    " + joined(patterns, "|") + ") " + action(option) + " ;;\n";
    }
  }
  return text;
}

std::vector<std::string> subcommand_names(const CommandFacts& command) {
  std::vector<std::string> names;
  for (const CommandFacts& below : command.subcommands) names.push_back(below.path.substr(command.path.size() + 1));
  return names;
}

// Possible positional arguments: commands, listed words, or paths.
std::vector<std::string> positional_words(const CommandFacts& command) {
  std::vector<std::string> words = subcommand_names(command);
  for (const OptionFacts& option : command.options) {
    if (option.names.empty()) words.insert(words.end(), option.words.begin(), option.words.end());
  }
  return words;
}

bool takes_positional_paths(const CommandFacts& command) {
  for (const OptionFacts& option : command.options) {
    if (option.names.empty() && option.takes_paths) return true;
  }
  return false;
}

std::string bash(const std::vector<const CommandFacts*>& commands) {
  std::string text = R"(# Completion of qkv for bash, from `qkv completion bash`.
_qkv() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=qkv options words paths="" i
  if [[ $cur == "=" ]]; then
    cur=""
  elif [[ $prev == "=" && $COMP_CWORD -ge 2 ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${COMP_WORDS[i]}" in
      )" + command_patterns(commands) +
                     R"() command="$command ${COMP_WORDS[i]}" ;;
    esac
  done
  COMPREPLY=()
  case "$command $prev" in
)";
  text += value_cases(commands, [](const OptionFacts& option) {
    return "words=" + quoted(joined(option.words, " ")) + (option.takes_paths ? " paths=1" : "") + " options=";
  });
  text += "    *)\n      case \"$command\" in\n";
  for (const CommandFacts* command : commands) {
    std::vector<std::string> names;
    for (const OptionFacts& option : command->options)
      names.insert(names.end(), option.names.begin(), option.names.end());
    text += "        " + quoted(command->path) + ") options=" + quoted(joined(names, " ")) +
            " words=" + quoted(joined(positional_words(*command), " ")) +
            (takes_positional_paths(*command) ? " paths=1" : "") + " ;;\n";
  }
  return text + R"(      esac ;;
  esac
  if [[ $cur == -* ]]; then words=$options paths=""; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"; [[ $paths ]] && compgen -f -- "$cur")
  if [[ $paths ]]; then compopt -o filenames 2>/dev/null; fi
}
complete -F _qkv qkv
)";
}

std::string zsh_description(std::string name, const std::string& description) {
  std::string text;
  for (const char c : name) text += c == ':' ? std::string("\\:") : std::string(1, c);
  return quoted(text + ":" + description);
}

std::string zsh(const std::vector<const CommandFacts*>& commands) {
  std::string text = R"(#compdef qkv
# Completion of qkv for zsh, from `qkv completion zsh`.
_qkv() {
  local command=qkv previous=${words[CURRENT-1]} i
  local -a offered options
  if [[ $PREFIX == --*=* ]]; then
    previous=${PREFIX%%=*}
    compset -P '*='
  fi
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command ${words[i]}" in
      )" + command_patterns(commands) +
                     R"() command="$command ${words[i]}" ;;
    esac
  done
  case "$command $previous" in
)";
  text += value_cases(commands, [](const OptionFacts& option) {
    std::string action;
    if (!option.words.empty()) action += "compadd -- " + joined(option.words, " ") + "; ";
    if (option.takes_paths) action += "_files; ";
    if (action.empty()) action = "_message " + quoted(option.value + ": " + option.description) + "; ";
    return action + "return";
  });
  text += "  esac\n  case \"$command\" in\n";
  for (const CommandFacts* command : commands) {
    text += "    " + quoted(command->path) + ")\n      options=(";
    for (const OptionFacts& option : command->options) {
      for (const std::string& name : option.names) text += "\n        " + zsh_description(name, option.description);
    }
    text += ")\n      offered=(";
    for (const CommandFacts& below : command->subcommands)
      text += "\n        " + zsh_description(below.path.substr(command->path.size() + 1), below.description);
    text += ")\n";
    for (const OptionFacts& option : command->options) {
      if (option.names.empty() && !option.words.empty()) text += "      compadd -- " + joined(option.words, " ") + "\n";
    }
    if (takes_positional_paths(*command)) text += "      [[ $PREFIX == -* ]] || _files\n";
    text += "      ;;\n";
  }
  return text + R"(  esac
  (( $#offered )) && _describe -t commands command offered
  [[ $PREFIX == -* || $#offered -eq 0 ]] && _describe -o option options
}
if [[ $funcstack[1] == _qkv ]]; then _qkv "$@"; else compdef _qkv qkv; fi
)";
}

std::string fish_option(const std::string& condition, const OptionFacts& option) {
  std::string text = condition;
  for (const std::string& name : option.names) {
    text += name.compare(0, 2, "--") == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.takes_value && !option.names.empty()) text += option.takes_paths ? " -r -F" : " -x";
  if (option.names.empty() && option.takes_paths) text += " -F";
  if (!option.words.empty()) text += " -a " + quoted_for_fish(joined(option.words, " "));
  return text + " -d " + quoted_for_fish(option.description) + "\n";
}

std::string fish(const std::vector<const CommandFacts*>& commands) {
  std::string text = R"(# Completion of qkv for fish, from `qkv completion fish`.
function __qkv_command
    set -l command qkv
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
            case)";
  for (const CommandFacts* command : commands) {
    if (command->path != "qkv") text += " " + quoted_for_fish(command->path);
  }
  text += R"(
                set command "$command $word"
        end
    end
    test "$command" = "$argv[1]"
end
complete -c qkv -f
)";
  for (const CommandFacts* command : commands) {
    const std::string condition = "complete -c qkv -n \"__qkv_command '" + command->path + "'\"";
    for (const CommandFacts& below : command->subcommands)
      text += condition + " -a " + below.path.substr(command->path.size() + 1) + " -d " +
              quoted_for_fish(below.description) + "\n";
    for (const OptionFacts& option : command->options) {
      if (!option.names.empty() || option.takes_paths || !option.words.empty()) text += fish_option(condition, option);
    }
  }
  return text;
}

void run(const CLI::App& app, const std::string& shell) {
  const CommandFacts top = qkv::cli::facts_of(app);
  const std::vector<const CommandFacts*> commands = qkv::cli::all_commands(top);
  qkv::cli::print(shell == "bash" ? bash(commands) : shell == "zsh" ? zsh(commands) : fish(commands));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""))
      ->type_name("bash|zsh|fish");
  command->footer(kFooter);
  command->callback([&app, shell] { run(app, *shell); });
}

const qkv::cli::Subcommand kCompletion(910, add);

}  // namespace
