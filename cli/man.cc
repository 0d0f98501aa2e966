// SPDX-License-Identifier: Apache-2.0
// qkv man: manual pages, generated from the command-line definitions.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "command_facts.h"
#include "qkv/error.h"
#include "qkv/text_file.h"
#include "qkv/version.h"

namespace {

using qkv::cli::CommandFacts;
using qkv::cli::OptionFacts;

struct Options {
  std::vector<std::string> command;
  std::string out;
};

constexpr const char* kFooter = R"(
Examples
  qkv man train | man -l -        shows the page of qkv train
  qkv man --out share/man/man1    writes all of them)";

// Text with all roff commands escaped.
std::string escaped(const std::string& text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string page_name(std::string path) {
  for (char& c : path) c = c == ' ' ? '-' : c;
  return path;
}

std::string option_paragraph(const OptionFacts& option) {
  std::string text = ".TP\n";
  for (std::size_t i = 0; i < option.names.size(); ++i)
    text += (i > 0 ? ", " : "") + ("\\fB" + escaped(option.names[i])) + "\\fR";
  if (!option.value.empty()) text += (option.names.empty() ? "\\fI" : " \\fI") + escaped(option.value) + "\\fR";
  text += "\n" + escaped(option.description);
  if (!option.default_value.empty()) text += " (default: " + escaped(option.default_value) + ")";
  if (option.required) text += " (required)";
  return text + "\n";
}

std::string option_section(const CommandFacts& command) {
  std::vector<std::string> groups;
  for (const OptionFacts& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  }
  std::string text = ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (groups.size() > 1) text += ".SS \"" + escaped(group) + "\"\n";
    for (const OptionFacts& option : command.options) {
      if (option.group == group) text += option_paragraph(option);
    }
  }
  return text;
}

std::string page(const CommandFacts& command) {
  const std::string name = escaped(page_name(command.path));
  std::string text = ".TH \"" + name + "\" 1 \"\" \"qkv " QKV_VERSION "\" \"User Commands\"\n";
  text += ".SH NAME\n" + name + " \\- " + escaped(command.description) + "\n";
  text += ".SH SYNOPSIS\n\\fB" + escaped(command.path) + "\\fR [\\fIOPTIONS\\fR]";
  if (!command.subcommands.empty()) text += " \\fICOMMAND\\fR";
  text += "\n" + option_section(command);
  if (!command.subcommands.empty()) text += ".SH COMMANDS\n";
  for (const CommandFacts& below : command.subcommands) {
    text += ".TP\n\\fB" + escaped(below.path) + "\\fR\n" + escaped(below.description) + "; \\fB" +
            escaped(page_name(below.path)) + "\\fR(1)\n";
  }
  const std::size_t footer = command.footer.find_first_not_of('\n');
  if (footer != std::string::npos) text += ".SH NOTES\n.nf\n" + escaped(command.footer.substr(footer)) + "\n.fi\n";
  text +=
      ".SH \"EXIT STATUS\"\n0 done, 1 failure, 2 usage, 130 or 143 interrupted; failures print one line on standard "
      "error.\n";
  if (command.path != "qkv") text += ".SH \"SEE ALSO\"\n\\fBqkv\\fR(1)\n";
  return text;
}

void write_pages(const CommandFacts& top, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw qkv::FileError(directory, error.message());
  for (const CommandFacts* command : all_commands(top))
    qkv::save_text(directory + "/" + page_name(command->path) + ".1", page(*command));
}

void run(const CLI::App& app, const Options& options) {
  const CommandFacts top = qkv::cli::facts_of(app);
  if (!options.out.empty()) {
    if (!options.command.empty()) throw qkv::cli::UsageError("--out writes all pages and cannot be used with COMMAND");
    return write_pages(top, options.out);
  }
  std::string path = "qkv";
  for (const std::string& word : options.command) path += " " + word;
  for (const CommandFacts* command : all_commands(top)) {
    if (command->path == path) return qkv::cli::print(page(*command));
  }
  throw qkv::cli::UsageError("unknown command '" + path + "'");
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print manual pages");
  auto options = std::make_shared<Options>();
  command->add_option("command", options->command, "Command [qkv itself]")->type_name("COMMAND");
  command->add_option("--out", options->out, "Write all pages into this directory")->type_name("DIR");
  command->footer(kFooter);
  command->callback([&app, options] { run(app, *options); });
}

const qkv::cli::Subcommand kMan(900, add);

}  // namespace
