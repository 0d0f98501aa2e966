// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace qkv_test {
namespace {

int open_leader() {
  const int leader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (leader < 0) return -1;
  if (::grantpt(leader) == 0 && ::unlockpt(leader) == 0 && ::access(::ptsname(leader), R_OK | W_OK) == 0) return leader;
  ::close(leader);
  return -1;
}

[[noreturn]] void become(const std::string& terminal, std::vector<std::string> words,
                         const std::vector<std::string>& environment) {
  ::setsid();
  const int follower = ::open(terminal.c_str(), O_RDWR);
  if (follower < 0 || ::ioctl(follower, TIOCSCTTY, 0) != 0) _exit(126);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(follower, fd);
  if (follower > 2) ::close(follower);
  for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  _exit(127);
}

}  // namespace

std::string no_terminals() {
  const int leader = open_leader();
  if (leader < 0) return std::string("no pseudo-terminals here: ") + std::strerror(errno);
  ::close(leader);
  return "";
}

Terminal::Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment)
    : leader_(open_leader()) {
  if (leader_ < 0) throw std::runtime_error("no pseudo-terminal");
  const std::string name = ::ptsname(leader_);
  std::vector<std::string> words = {QKV_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) become(name, words, environment);
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(leader_);
}

void Terminal::type(const std::string& keys) const {
  if (::write(leader_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("cannot type");
}

bool Terminal::read_more() {
  pollfd ready{leader_, POLLIN, 0};
  if (::poll(&ready, 1, 30000) <= 0) return false;
  char buffer[4096];
  const ssize_t count = ::read(leader_, buffer, sizeof buffer);
  if (count > 0) shown_.append(buffer, static_cast<std::size_t>(count));
  return count > 0;
}

bool Terminal::wait_for(const std::string& text) {
  std::size_t at = 0;
  while ((at = shown_.find(text, seen_)) == std::string::npos)
    if (!read_more()) return false;
  seen_ = at + text.size();
  return true;
}

bool Terminal::wait_for_prompt(const std::string& prompt, bool edits) {
  if (!wait_for(prompt)) return false;
  for (int tries = 0; edits && echoes(); ++tries) {
    if (tries == 30000) return false;
    ::usleep(1000);
  }
  return true;
}

int Terminal::finish() {
  while (read_more()) {
  }
  pollfd ready{leader_, POLLIN, 0};
  if (::poll(&ready, 1, 0) == 0) ::kill(pid_, SIGKILL);  // no output, but not at its end
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
}

bool Terminal::echoes() const {
  termios settings{};
  return ::tcgetattr(leader_, &settings) == 0 && (settings.c_lflag & ICANON) != 0 && (settings.c_lflag & ECHO) != 0;
}

}  // namespace qkv_test
