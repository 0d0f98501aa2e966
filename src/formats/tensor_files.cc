// SPDX-License-Identifier: Apache-2.0
#include "formats/tensor_files.h"

#include <filesystem>

#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestIndex = std::size_t{1} << 26;

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string("/\\\0", 3)) == name.npos;
}

}  // namespace

TensorFiles TensorFiles::open(const std::string& directory) {
  const std::string index = directory + "/model.safetensors.index.json", single = directory + "/model.safetensors";
  std::error_code ignored;
  const bool whole = std::filesystem::exists(single, ignored);
  return !whole && std::filesystem::exists(index, ignored) ? open_index(index) : open_file(single);
}

TensorFiles TensorFiles::open_file(const std::string& path) {
  TensorFiles result;
  result.path_ = path;
  result.files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& entry : result.files_[0]->tensors()) result.homes_.emplace(entry.name, result.files_[0].get());
  return result;
}

TensorFiles TensorFiles::open_index(const std::string& path) {
  TensorFiles result;
  result.path_ = path;
  const nlohmann::json json = load_json(path, kLargestIndex);
  const JsonPlace index(path, json), map = index.at("weight_map");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [name, ignored] : map.object().items()) {
    const std::string& shard = map.at(name).string();
    if (!is_plain_name(shard)) map.at(name).fail("expected a file name without a path; found " + in_quotes(shard));
    const SafetensorsFile*& file = opened[shard];
    if (!file) {
      result.files_.push_back(std::make_unique<SafetensorsFile>((folder.empty() ? "" : folder + "/") + shard));
      file = result.files_.back().get();
    }
    if (!file->has(name))
      throw FileError(file->path(), "tensor " + in_quotes(name) + ": is missing, but the index lists it here");
    result.homes_.emplace(name, file);
  }
  for (const auto& file : result.files_)
    for (const auto& entry : file->tensors())
      if (result.file_of(entry.name) != file.get())
        throw FileError(file->path(),
                        "tensor " + in_quotes(entry.name) + ": is in this file, but the index does not list it here");
  return result;
}

const SafetensorsFile* TensorFiles::file_of(std::string_view name) const noexcept {
  const auto found = homes_.find(name);
  return found == homes_.end() ? nullptr : found->second;
}

ConstView TensorFiles::find(std::string_view name) const {
  const SafetensorsFile* file = file_of(name);
  return file ? file->find(name) : ConstView{};
}

std::vector<std::string_view> TensorFiles::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, ignored] : homes_) names.push_back(name);
  return names;
}

std::vector<StoredTensor> TensorFiles::stored() const {
  std::vector<StoredTensor> result;
  for (const auto& file : files_)
    for (const auto& entry : file->tensors()) result.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
  return result;
}

}  // namespace qkv
