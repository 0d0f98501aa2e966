// SPDX-License-Identifier: Apache-2.0
// qkv: parses the command line, runs one subcommand, and reports exceptions as one line and an exit status.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>

#include "arguments.h"
#include "cli.h"
#include "command_examples.h"
#include "command_facts.h"
#include "help_text.h"
#include "number_options.h"
#include "qkv/interrupt.h"
#include "qkv/kernels.h"
#include "qkv/threads.h"
#include "qkv/version.h"

namespace qkv::cli {
namespace {

constexpr const char* kFooter = R"(
Examples
  qkv train --data my_text/ --out my_model
  qkv generate -m my_model -p "Once upon a time"
  qkv help train                     the same as qkv train --help)";

struct Entry {
  int order;
  void (*add)(CLI::App&);
};

std::vector<Entry>& entries() {
  static std::vector<Entry> list;
  return list;
}

// If the program is started with a closed standard stream, the next opened file would get its descriptor and receive
// the output. This opens /dev/null there instead, in a mode that makes reads or writes fail.
void occupy_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) _exit(1);
    }
  }
}

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return text;
}

int fail(const std::string& what) {
  print_error("qkv: " + one_line(what) + "\n");
  return 1;
}

// Ends the process by SIGPIPE after cleanup: the parent sees death by that signal (141 in a shell), even if SIGPIPE was
// ignored.
[[noreturn]] void end_by_sigpipe() {
  std::signal(SIGPIPE, SIG_DFL);
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigprocmask(SIG_UNBLOCK, &pipe, nullptr);
  std::raise(SIGPIPE);
  _exit(128 + SIGPIPE);
}

int misuse(const NamedCommand& named, const std::string& what) {
  print_error("qkv: " + one_line(as_typed(*named.command, what)) + " (see " + named.path + " --help)\n");
  return 2;
}

int print_help(const NamedCommand& named) {
  print(help_text(facts_of(*named.command, named.path), help_width()));
  return 0;
}

int parse_and_run(CLI::App& app, const std::vector<std::string>& arguments) {
  const NamedCommand named = named_command(app, arguments);
  try {
    std::vector<std::string> words = normalise_arguments(app, arguments);
    std::reverse(words.begin(), words.end());  // CLI11 expects reverse order
    app.parse(words);
    return 0;
  } catch (const CLI::CallForHelp&) {
    return print_help(named);
  } catch (const CLI::CallForVersion& version) {
    print(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    return misuse(named, problems(app, error));
  } catch (const UsageError& error) {
    return misuse(named, error.what());
  }
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

int run(int argc, char** argv) {
  CLI::App app("Train, run and inspect small language models; attention in C++.", "qkv");
  app.set_help_flag("-h,--help", "Print help");
  app.set_version_flag("--version", "qkv " QKV_VERSION, "Print the version");
  app.require_subcommand(1);
  std::vector<Entry>& list = entries();
  std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) { return a.order < b.order; });
  for (const Entry& entry : list) entry.add(app);
  add_examples(app);
  app.footer(kFooter);
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) return print_help(named_command(app, arguments));
  if (arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  const std::vector<std::string> names = command_names(app);
  if (arguments[0][0] != '-' && std::find(names.begin(), names.end(), arguments[0]) == names.end())
    return misuse({&app, "qkv"}, "unknown command '" + arguments[0] + "'" + suggestion(arguments[0], names));
  (void)kernel_set();  // an unavailable QKV_CPU or QKV_KERNELS is an error in every command
  return parse_and_run(app, arguments);
}

}  // namespace

Subcommand::Subcommand(int order, void (*add)(CLI::App& app)) { entries().push_back({order, add}); }

std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      throw ReaderGone("standard output is closed");
    } else if (errno != EINTR) {
      throw OutputError(std::string("cannot write to standard output: ") + std::strerror(errno));
    }
  }
}

void print_error(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool input_is_terminal() noexcept { return isatty(STDIN_FILENO) == 1; }
bool output_is_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }
bool error_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }

void add_threads_option(CLI::App& command) {
  command
      .add_option_function<int>(
          "-t,--threads", [](int threads) { set_num_threads(threads); }, "Number of threads; 0 = one per core")
      ->transform(number_check<int>())
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
}

}  // namespace qkv::cli

namespace {

int status_of_run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // both make the write fail instead
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return qkv::cli::run(argc, argv);
  } catch (const qkv::cli::ReaderGone&) {
    qkv::cli::end_by_sigpipe();
  } catch (const std::bad_alloc&) {
    return qkv::cli::fail("not enough memory");
  } catch (const std::exception& error) {
    return qkv::cli::fail(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  qkv::cli::occupy_standard_streams();
  const int status = status_of_run(argc, argv);
  const int signal = qkv::interrupt_signal();  // an interrupted command exits with 128 + signal: 130 for Ctrl-C
  return signal == 0 ? status : 128 + signal;
}
