// SPDX-License-Identifier: Apache-2.0
// qkv: parses the command line, runs one subcommand, and turns what it throws into one line and an exit status.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>

#include "cli.h"
#include "number_options.h"
#include "qkv/kernels.h"
#include "qkv/threads.h"

namespace qkv::cli {
namespace {

struct Entry {
  int order;
  void (*add)(CLI::App&);
};

std::vector<Entry>& entries() {
  static std::vector<Entry> list;
  return list;
}

// A program started with a closed standard stream would get that number for the next file it opens, and then write
// text into it. Something that refuses to be read or written stands there instead.
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

int misuse(const CLI::App& app, const std::string& what) {
  std::string command = "qkv";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  print_error("qkv: " + one_line(what) + " (see " + command + " --help)\n");
  return 2;
}

int parse_and_run(CLI::App& app, std::vector<std::string> arguments) {
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
    app.parse(arguments);
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    print(app.help("", CLI::AppFormatMode::All));
    return 0;
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    print(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    return misuse(app, error.what());
  } catch (const UsageError& error) {
    return misuse(app, error.what());
  }
}

int run(int argc, char** argv) {
  CLI::App app("Attention and small language models: grow them, run them, look into them.", "qkv");
  app.set_version_flag("--version", "qkv " QKV_VERSION);
  app.require_subcommand(1);
  std::vector<Entry>& list = entries();
  std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) { return a.order < b.order; });
  for (const Entry& entry : list) entry.add(app);
  const std::vector<std::string> arguments = normalise_arguments({argv + std::min(argc, 1), argv + argc});
  const auto is_first = [&](const CLI::App* command) { return command->get_name() == arguments[0]; };
  if (!arguments.empty() && arguments[0][0] != '-' && app.get_subcommands(is_first).empty()) {
    return misuse(app, "there is no command '" + arguments[0] + "'");
  }
  (void)kernel_set();  // a QKV_CPU or QKV_KERNELS that cannot be had is an error of every command
  return parse_and_run(app, arguments);
}

}  // namespace

Subcommand::Subcommand(int order, void (*add)(CLI::App& app)) { entries().push_back({order, add}); }

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
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

bool output_is_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }
bool error_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }

void add_threads_option(CLI::App& command) {
  command
      .add_option_function<int>(
          "-t,--threads", [](int threads) { set_num_threads(threads); }, "Threads to compute with; 0 is one a core")
      ->transform(number_check<int>())
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::vector<std::string> normalise_arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  bool options = true;
  for (const std::string& argument : arguments) {
    if (argument == "--") options = false;
    if (options && argument.size() > 2 && argument.compare(0, 2, "--") == 0) {
      const std::size_t end = std::min(argument.find('='), argument.size());
      result.push_back(with_dashes(argument.substr(0, end)) + argument.substr(end));
    } else {
      result.push_back(argument);
    }
  }
  return result;
}

}  // namespace qkv::cli

int main(int argc, char** argv) {
  qkv::cli::occupy_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);  // both are errors of the write that is too much
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return qkv::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return qkv::cli::fail("not enough memory");
  } catch (const std::exception& error) {
    return qkv::cli::fail(error.what());
  }
}
