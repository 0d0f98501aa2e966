// SPDX-License-Identifier: Apache-2.0
#include "formats/open_model.h"

#include <filesystem>

#include "formats/directory_source.h"
#include "formats/families/andrea.h"
#include "formats/gguf_source.h"
#include "os/mapped_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

bool begins_with(const std::string& path, std::string_view magic) {
  const MappedFile file(path);
  return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with(magic);
}

// A hint for a file inside a model directory.
std::string hint(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!std::filesystem::exists(folder / "config.json", error)) return {};
  return "; the model is the directory " + (folder.empty() ? std::string(".") : folder.string());
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw FileError(path, "cannot be opened: No such file or directory");
  if (std::filesystem::is_directory(status)) {
    if (!std::filesystem::exists(std::filesystem::path(path) / "config.json", error))
      throw FileError(path, "expected a model directory with config.json; found a directory without it");
    return open_directory(path);
  }
  if (begins_with(path, "GGUF")) return open_gguf(path);
  if (path.ends_with(".bin")) return open_andrea(path);
  throw FileError(
      path, 0,
      "expected a model: a directory with config.json, a GGUF file or an ANDREA checkpoint (.bin)" + hint(path));
}

}  // namespace qkv
