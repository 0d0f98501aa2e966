// SPDX-License-Identifier: Apache-2.0
// Files of named tensors in the safetensors format (https://github.com/huggingface/safetensors#format): u64 length of
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

// A memory-mapped file. Opening it checks the whole header: every tensor lies inside the file, tensors cover it without
// gaps or overlap, names are unique, and each byte count matches shape and type. Thread-safe.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;                // as stored: "F32", "F8_E4M3", ...
    std::vector<std::int64_t> shape;  // any rank
    const std::byte* data = nullptr;  // possibly unaligned
    std::size_t bytes = 0;
  };

  // Throws qkv::FileError with the tensor and the violated rule.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const noexcept { return file_.path(); }
  const std::vector<Entry>& tensors() const noexcept { return entries_; }  // in file order
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

  bool has(std::string_view name) const noexcept { return entry(name) != nullptr; }
  // Zero-copy view of the elements; empty if there is no such tensor. They may be unaligned, so use memcpy or read().
  // Throws qkv::FileError if qkv does not support the type, or for more than kMaxRank dimensions.
  ConstView find(std::string_view name) const;
  // Copies the elements of a tensor with exactly the type and shape of `to`, which must be row-major; throws
  // qkv::FileError if missing or different.
  void read(std::string_view name, View to) const;
  Tensor read(std::string_view name) const;  // any type and shape

 private:
  const Entry* entry(std::string_view name) const noexcept;

  MappedFile file_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

struct NamedView {
  std::string name;
  ConstView view;  // any strides; must not be empty
  // If set: creates the elements when they are written, so that not all need be in memory at once. Then `view` has only
  // type and shape.
  std::function<Tensor()> make = {};
};

// Writes a file atomically, tensors by descending element size and then by name, as other writers do. Throws
// qkv::FileError, and std::invalid_argument for a name that is a duplicate, `__metadata__` or not UTF-8. All bytes of
// the file are passed to `watcher`, if set, as they are written.
void write_safetensors(const std::string& path, std::vector<NamedView> tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       const std::function<void(const void* data, std::size_t size)>& watcher = {});

}  // namespace qkv
