// SPDX-License-Identifier: Apache-2.0
#include "fuzz/reader_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "memory_folder.h"

namespace qkv::test {

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), {}};
}

Folder::Folder() : path_(make_memory_folder("qkv-fuzz-")) {}

Folder::~Folder() { std::filesystem::remove_all(path_); }

std::string Folder::write(const std::string& name, std::string_view bytes) const {
  std::string to = path(name);
  const int file = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const ssize_t written = file < 0 ? -1 : ::write(file, bytes.data(), bytes.size());
  if (file >= 0) ::close(file);
  if (written != static_cast<ssize_t>(bytes.size())) throw std::runtime_error(to + ": cannot be written");
  return to;
}

const Folder& folder() {
  static const Folder only;
  return only;
}

std::string_view next_part(std::string_view& rest) {
  const std::size_t zero = std::min(rest.find('\0'), rest.size());
  const std::string_view part = rest.substr(0, zero);
  rest.remove_prefix(std::min(zero + 1, rest.size()));
  return part;
}

void touch(const void* data, std::size_t bytes) {
  volatile unsigned char last = 0;
  for (std::size_t i = 0; i < bytes; ++i) last = static_cast<const unsigned char*>(data)[i];
  static_cast<void>(last);
}

}  // namespace qkv::test
