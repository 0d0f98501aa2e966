// SPDX-License-Identifier: Apache-2.0
// The tensors of a directory: model.safetensors, or shards listed in model.safetensors.index.json.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_source.h"
#include "formats/safetensors.h"

namespace qkv {

// Thread-safe.
class TensorFiles {
 public:
  // Opens the files of a directory. Throws qkv::FileError if there are none, if the index names a path instead of a
  // file name, a missing file or a tensor that is not in the named file, or if a file contains a tensor that the index
  // does not list.
  static TensorFiles open(const std::string& directory);
  static TensorFiles open_index(const std::string& path);
  static TensorFiles open_file(const std::string& path);

  // The index, or the only file; used in messages.
  const std::string& path() const noexcept { return path_; }
  // The file that contains a tensor; nullptr if there is none.
  const SafetensorsFile* file_of(std::string_view name) const noexcept;
  ConstView find(std::string_view name) const;  // empty if there is no such tensor
  std::size_t size() const noexcept { return homes_.size(); }
  std::vector<std::string_view> names() const;
  std::vector<StoredTensor> stored() const;  // by file, then in byte order
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const noexcept { return files_; }

 private:
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> homes_;
};

}  // namespace qkv
