// SPDX-License-Identifier: Apache-2.0
#include "read_text.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "qkv/error.h"

namespace qkv::cli {

std::string read_text(const std::string& path) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      standard ? stdin : std::fopen(path.c_str(), "rb"), [](std::FILE* f) { return f == stdin ? 0 : std::fclose(f); });
  if (!file) throw qkv::FileError(name, std::string("cannot be opened: ") + std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  std::size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) text.append(buffer, count);
  if (std::ferror(file.get())) throw qkv::FileError(name, std::string("cannot be read: ") + std::strerror(errno));
  return text;
}

}  // namespace qkv::cli
