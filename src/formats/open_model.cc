// SPDX-License-Identifier: Apache-2.0
#include "formats/open_model.h"

#include <filesystem>

#include "formats/families/andrea.h"
#include "formats/directory_source.h"
#include "formats/gguf_source.h"
#include "os/mapped_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

bool begins_with(const std::string& path, std::string_view magic) {
  const MappedFile file(path);
  return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with(magic);
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw FileError(path, "cannot be opened: No such file or directory");
  if (std::filesystem::is_directory(status)) return open_directory(path);
  if (begins_with(path, "GGUF")) return open_gguf(path);
  if (path.ends_with(".bin")) return open_andrea(path);
  throw FileError(path, 0,
                  "expected a model: a directory with config.json, a GGUF file, or a checkpoint of ANDREA (.bin)");
}

}  // namespace qkv
