// SPDX-License-Identifier: Apache-2.0
#include "qkv/text_file.h"

#include <filesystem>
#include <fstream>

#include "os/atomic_file.h"
#include "qkv/error.h"

namespace qkv {

void save_text(const std::string& path, std::string_view text) {
  std::error_code error;
  if (!std::filesystem::is_other(path, error)) return replace_file(path, text);
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw FileError(path, "cannot be written");
}

}  // namespace qkv
