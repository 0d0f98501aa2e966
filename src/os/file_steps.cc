// SPDX-License-Identifier: Apache-2.0
#include "os/file_steps.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "os/system_error.h"

namespace qkv {
namespace {

struct Watch {
  std::int64_t kill_at = 0;  // 0: never
  std::string log;           // "": none
  bool on() const noexcept { return kill_at > 0 || !log.empty(); }
};

Watch read_watch() {
  const char* const text = std::getenv("QKV_FILE_STEPS");
  Watch watch;
  if (!text) return watch;
  const std::string_view value = text;
  if (value.starts_with("log:")) watch.log = value.substr(4);
  if (value.starts_with("kill:")) std::from_chars(text + 5, text + value.size(), watch.kill_at);
  if (!watch.on())
    throw std::invalid_argument("[QKV_FILE_STEPS] expected log:FILE or kill:N; found '" + std::string(value) + "'");
  return watch;
}

const Watch& watch() {
  static const Watch value = read_watch();
  return value;
}

void append_line(const std::string& path, const std::string& line) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0 || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw_system_error(path, "cannot be written", errno);
}

}  // namespace

bool file_steps_watched() { return watch().on(); }

void file_step(const char* name, const std::string& path) {
  static std::atomic<std::int64_t> steps{0};
  if (!watch().on()) return;
  const std::int64_t number = ++steps;
  if (number == watch().kill_at) ::raise(SIGKILL);
  if (!watch().log.empty()) append_line(watch().log, std::to_string(number) + " " + name + " " + path + "\n");
}

}  // namespace qkv
