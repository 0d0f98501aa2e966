// SPDX-License-Identifier: Apache-2.0
#include "read_text.h"

#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "output.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

// Whether a read returns at a newline or at Ctrl-D, so that text without a newline means Ctrl-D.
bool reads_lines_of_terminal(int file) {
  termios settings{};
  return tcgetattr(file, &settings) == 0 && (settings.c_lflag & ICANON) != 0;
}

std::string read_all(int file, const std::string& name) {
  const bool keyboard = reads_lines_of_terminal(file);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw qkv::FileError(name, std::string("cannot be read: ") + std::strerror(errno));
    text.append(buffer, static_cast<std::size_t>(count));
    if (count == 0 || (keyboard && text.back() != '\n')) return text;
  }
}

}  // namespace

std::string read_text(const std::string& path, std::string_view what) {
  if (path == "-") {
    if (input_is_terminal())
      print_error("reading " + std::string(what) + " from the keyboard; end with Ctrl-D, on any line\n");
    return read_all(STDIN_FILENO, "standard input");
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw qkv::FileError(path, std::string("cannot be opened: ") + std::strerror(errno));
  return read_all(fileno(file.get()), path);
}

}  // namespace qkv::cli
