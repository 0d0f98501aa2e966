// SPDX-License-Identifier: Apache-2.0
// Files of named tensors, the safetensors format (https://github.com/huggingface/safetensors#format): u64 length of
// the header, a JSON header, the elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "os/mapped_file.h"
#include "qkv/tensor.h"

namespace qkv {

// A file read through a mapping. All of its header is checked when it is opened: every tensor lies inside the file,
// they tile it without hole or overlap, names are unique, shape and type need exactly the bytes there are. Any number
// of threads may read one.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;                // as in the file: "F32", "F8_E4M3", ...
    std::vector<std::int64_t> shape;  // of any rank
    const std::byte* data = nullptr;  // at any address, aligned or not
    std::size_t bytes = 0;
  };

  // Throws qkv::FileError, naming tensor and rule.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const noexcept { return file_.path(); }
  const std::vector<Entry>& tensors() const noexcept { return entries_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

  bool has(std::string_view name) const noexcept { return entry(name) != nullptr; }
  // The elements in place; the empty view if there is no such tensor. They need not be aligned to their type, so read
  // them with memcpy or take read(). Throws qkv::FileError if qkv has no such type, or for more than kMaxRank
  // dimensions.
  ConstView find(std::string_view name) const;
  // Copies the elements of a tensor that must be there with exactly the type and shape of `to`, which must be
  // row-major; throws qkv::FileError if it is not.
  void read(std::string_view name, View to) const;
  Tensor read(std::string_view name) const;  // likewise, whatever its type and shape

 private:
  const Entry* entry(std::string_view name) const noexcept;

  MappedFile file_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

struct NamedView {
  std::string name;
  ConstView view;  // any strides; none may be the empty view
  // Where there is one: makes the elements when their turn comes, so that not all need be in memory at once. Then
  // `view` is nothing but type and shape.
  std::function<Tensor()> make = {};
};

// Writes a file atomically, tensors by descending size of their type and then by name, as other writers of the format
// do. Throws qkv::FileError, and std::invalid_argument for a name that is given twice, is `__metadata__` or is not
// UTF-8. All bytes of the file pass `watcher`, if there is one, as they are written.
void write_safetensors(const std::string& path, std::vector<NamedView> tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       const std::function<void(const void* data, std::size_t size)>& watcher = {});

}  // namespace qkv
