// SPDX-License-Identifier: Apache-2.0
// The tensors of a directory: model.safetensors, or shards that model.safetensors.index.json lists.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_source.h"
#include "formats/safetensors.h"

namespace qkv {

// Any number of threads may read one.
class TensorFiles {
 public:
  // The files of a directory. Throws qkv::FileError if there are none, if the index names what is no plain file name, a
  // file that is missing or a tensor that is not in the file it names, and if a file holds a tensor that the index does
  // not name.
  static TensorFiles open(const std::string& directory);
  static TensorFiles open_index(const std::string& path);
  static TensorFiles open_file(const std::string& path);

  // The index, or the only file: what messages name.
  const std::string& path() const noexcept { return path_; }
  // The file that holds a tensor; nullptr if none does.
  const SafetensorsFile* file_of(std::string_view name) const noexcept;
  ConstView find(std::string_view name) const;  // the empty view if there is no such tensor
  std::size_t size() const noexcept { return homes_.size(); }
  std::vector<std::string_view> names() const;
  std::vector<StoredTensor> stored() const;  // file by file, in the order of the bytes
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const noexcept { return files_; }

 private:
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> homes_;
};

}  // namespace qkv
