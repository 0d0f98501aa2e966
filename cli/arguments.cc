// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <algorithm>
#include <regex>

#include "nearest_word.h"

namespace qkv::cli {
namespace {

// An option of llama.cpp, nanoGPT, PyTorch or Hugging Face: its name in qkv, or why it has no counterpart.
struct Habit {
  std::vector<std::string> names, here;  // `here`: the first one that the command has is used
  const char* note = "";
};

const std::vector<Habit>& habits() {
  static const std::vector<Habit> table = {
      {{"-c", "--ctx-size", "--context", "--max-seq-len", "--max-position-embeddings"}, {"--ctx-len"}, ""},
      {{"--n-predict", "--max-new-tokens", "--predict", "--max-length"}, {"--max-tokens"}, ""},
      {{"--lr"}, {"--learning-rate"}, ""},
      {{"--num-samples", "--num-return-sequences"}, {"--samples"}, ""},
      {{"-sys", "--system-prompt"}, {"--system"}, ""},
      {{"--prompt-file"}, {"--file"}, ""},
      {{"--temperature"}, {"--temp"}, ""},
      {{"--num-layers", "--n-layers", "--num-hidden-layers"}, {"--n-layer"}, ""},
      {{"--num-heads", "--n-heads", "--num-attention-heads", "--heads"}, {"--n-head"}, ""},
      {{"--num-key-value-heads", "--kv-heads"}, {"--n-kv-head"}, ""},
      {{"--hidden-size", "--dim"}, {"--d-model"}, ""},
      {{"--intermediate-size"}, {"--d-ff"}, ""},
      {{"--batch"}, {"--batch-size"}, ""},
      {{"--file", "-f"}, {"--data"}, ""},
      {{"--num-threads"}, {"--threads"}, ""},
      {{"-ngl", "--n-gpu-layers", "--gpu-layers"}, {}, "the whole model runs on one device; choose it with --device"},
      {{"--compile"}, {}, "qkv does not compile models; leave it out"},
      {{"--init-from"}, {}, "--init MODEL starts from a model, --resume continues the run in --out"},
      {{"--epochs", "--num-train-epochs"}, {}, "training is measured in steps; use --steps"},
  };
  return table;
}

bool has_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

// The qkv name of another program's option; the same name if there is none.
std::string name_here(const CLI::App& command, const std::string& name) {
  if (has_option(command, name)) return name;
  for (const Habit& habit : habits()) {
    if (std::find(habit.names.begin(), habit.names.end(), name) == habit.names.end()) continue;
    for (const std::string& here : habit.here)
      if (has_option(command, here)) return here;
    if (habit.here.empty()) throw UsageError("unknown option " + name + ": " + habit.note);
  }
  return name;
}

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string shown_name(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return option.get_name();
}

void add_value_problems(CLI::App& command, std::vector<std::string>& found) {
  for (CLI::Option* option : command.get_options()) {
    if (option->count() == 0) {
      if (option->get_required()) found.push_back(shown_name(*option) + " is required");
      continue;
    }
    try {
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      found.emplace_back(error.what());
    } catch (const UsageError& error) {
      found.emplace_back(error.what());
    }
    for (const CLI::Option* other : option->get_excludes())
      if (other->count() > 0 && option < other)
        found.push_back(shown_name(*option) + " cannot be used with " + shown_name(*other));
    for (const CLI::Option* other : option->get_needs())
      if (other->count() == 0) found.push_back(shown_name(*option) + " needs " + shown_name(*other));
  }
}

void add_unknown(const CLI::App& command, const std::vector<std::string>& words, std::vector<std::string>& found) {
  bool option_before = false;  // its value is not a separate problem
  for (const std::string& word : words) {
    const bool option = word.size() > 1 && word[0] == '-';
    if (option)
      found.push_back("unknown option '" + word + "'" + suggestion(name_of(word), long_names(command)));
    else if (!option_before)
      found.push_back("unexpected argument '" + word + "'");
    option_before = option;
  }
}

}  // namespace

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

NamedCommand named_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  NamedCommand named{&app, app.get_name()};
  for (const std::string& word : arguments) {
    const auto below = named.command->get_subcommands([&](const CLI::App* c) { return c->get_name() == word; });
    if (word.empty() || below.empty()) break;
    named = {below.front(), named.path + " " + word};
  }
  return named;
}

std::vector<std::string> normalise_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App& command = *named_command(app, arguments).command;
  std::vector<std::string> result;
  bool options = true;
  for (const std::string& argument : arguments) {
    if (argument == "--") options = false;
    if (!options || argument.size() < 2 || argument[0] != '-') {
      result.push_back(argument);
      continue;
    }
    std::string name = name_of(argument), value = argument.substr(name.size());
    if (name.starts_with("--")) name = with_dashes(name);
    name = name_here(command, name);
    if (!value.empty() && name.size() == 2) {
      result.push_back(name);
      result.push_back(value.substr(1));
    } else {
      result.push_back(name + value);
    }
  }
  return result;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t kBeginning = 5;  // this many letters identify a longer name
  std::string nearest = nearest_word(word, known);
  for (const std::string& name : known)
    if (word.size() >= kBeginning && name.starts_with(word)) nearest = name;
  return nearest.empty() ? "" : " (did you mean '" + nearest + "'?)";
}

std::string problems(CLI::App& app, const CLI::ParseError& first) {
  CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&first)) return first.what();
  std::vector<std::string> found;
  add_unknown(*command, app.remaining(true), found);
  add_value_problems(*command, found);
  for (CLI::App* group : command->get_subcommands([](const CLI::App* c) { return c->get_name().empty(); }))
    add_value_problems(*group, found);
  if (found.empty()) return first.what();
  std::string text;
  for (const std::string& problem : found) text += (text.empty() ? "" : "; ") + problem;
  return text;
}

std::string as_typed(const CLI::App& command, const std::string& message) {
  static const std::regex scope(R"(^\[\w+\] )"), member(R"(\b[a-z]+(_[a-z]+)*\b)");
  std::smatch match;
  if (!std::regex_search(message, match, scope)) return message;
  const std::string text = match.suffix();
  std::string result;
  auto at = text.cbegin();
  for (std::sregex_iterator word(text.cbegin(), text.cend(), member), end; word != end; ++word) {
    const std::string name = "--" + with_dashes(word->str());
    // A plain word ("window") is an option only at the start of the message.
    const bool is_member = word->str().find('_') != std::string::npos || word->position() == 0;
    result.append(at, text.cbegin() + word->position());
    result += is_member && has_option(command, name) ? name : word->str();
    at = text.cbegin() + word->position() + word->length();
  }
  result.append(at, text.cend());
  return result;
}

}  // namespace qkv::cli
