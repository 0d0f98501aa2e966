// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace qkv_test {
namespace {

struct Pipe {
  int ends[2];
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
};

[[noreturn]] void become(const std::vector<std::string>& command, const Pipe& in, const Pipe& out, const Pipe& err) {
  dup2(in.ends[0], 0);
  dup2(out.ends[1], 1);
  dup2(err.ends[1], 2);
  std::signal(SIGPIPE, SIG_DFL);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

// False at the end of the stream.
bool append(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof buffer);
  if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  return count > 0;
}

Finished run(const std::vector<std::string>& command, const std::string& input,
             const std::function<void(const std::string&, int)>& on_output) {
  Pipe in, out, err;
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) become(command, in, out, err);
  in.close_end(0);
  out.close_end(1);
  err.close_end(1);
  std::signal(SIGPIPE, SIG_IGN);
  // The inputs of these tests fit into a pipe's buffer.
  if (write(in.ends[1], input.data(), input.size()) < 0 && !input.empty()) throw std::runtime_error("write");
  in.close_end(1);

  Finished result;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    pollfd fds[2] = {{out_open ? out.ends[0] : -1, POLLIN, 0}, {err_open ? err.ends[0] : -1, POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[0].revents) {
      out_open = append(out.ends[0], result.out);
      if (on_output) on_output(result.out, pid);
    }
    if (fds[1].revents) err_open = append(err.ends[0], result.err);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
  return result;
}

}  // namespace

Finished run_qkv(const std::vector<std::string>& arguments, const std::string& input,
                 const std::function<void(const std::string&, int)>& on_output) {
  std::vector<std::string> command = {QKV_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(command, input, on_output);
}

Finished run_shell(const std::string& command) {
  setenv("QKV", QKV_PROGRAM, 1);
  return run({"/bin/sh", "-c", command}, "", {});
}

}  // namespace qkv_test
