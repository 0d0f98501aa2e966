// SPDX-License-Identifier: Apache-2.0
// GGUF files, versions 2 and 3, as plain data: typed keys, a directory of tensors, and zero-copy access to the bytes
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Independent of models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "os/mapped_file.h"
#include "qkv/tensor.h"

namespace qkv {

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

std::string_view gguf_type_name(GgufType type) noexcept;  // "u32"

struct GgufKey {
  std::string_view name;
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of array elements; never array
  std::uint64_t count = 0;          // elements of an array
  std::span<const std::byte>
      bytes;                // the number, the characters of the string, the elements of the array as they stand
  std::int64_t offset = 0;  // of the value within the file
};

// An element type known to ggml. Those without a DType can be listed but not read.
struct GgufTensorType {
  std::uint32_t id;
  std::string_view name;  // "Q4_K"
  std::int64_t elements;  // per block
  std::int64_t bytes;     // per block
  std::optional<DType> type;
};
const GgufTensorType* gguf_tensor_type(std::uint32_t id) noexcept;  // null: unknown type
const GgufTensorType& gguf_tensor_type(DType type) noexcept;

struct GgufTensor {
  std::string_view name;
  const GgufTensorType* type = nullptr;
  std::vector<std::int64_t> dims;    // 1 to 4 sizes, fastest-varying first, as in the file
  std::span<const std::byte> bytes;  // the number, the string's characters or the array's elements, as stored
  std::int64_t offset = 0;           // of the directory entry within the file

  std::int64_t row() const noexcept { return dims[0]; }  // elements per row
  std::int64_t rows() const noexcept;
};

// The contents of a file, which the caller owns and must keep alive. The constructor checks everything except the
// tensors' bytes: names are unique, all values and tensors lie inside the file, and tensors are contiguous except for
// alignment. Memory use is proportional to the file's header. Immutable.
class Gguf {
 public:
  // `path` is for messages. Throws qkv::FileError with the byte offset and the violated rule.
  Gguf(std::string path, std::span<const std::byte> file);

  const std::string& path() const noexcept { return path_; }
  std::uint32_t version() const noexcept { return version_; }
  std::uint64_t alignment() const noexcept { return alignment_; }
  const std::vector<GgufKey>& keys() const noexcept { return keys_; }           // in file order
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }  // in file order
  const GgufKey* find_key(std::string_view name) const noexcept;                // null: not found
  const GgufTensor* find_tensor(std::string_view name) const noexcept;          // null: not found

  bool has(std::string_view key) const noexcept { return find_key(key) != nullptr; }
  // Values; qkv::FileError if missing or of another type. Integers may have any width and signedness.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  double number(std::string_view key) const;  // f32 or f64, finite
  bool boolean(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> floats(std::string_view key) const;  // f32 only
  // Throws qkv::FileError with the key and, if it exists, its byte offset.
  [[noreturn]] void fail_key(std::string_view key, const std::string& reason) const;

  // Rows `first` ... `first + count - 1` of a tensor of this file as f32, to [count, row]. Throws qkv::FileError if qkv
  // does not support its type.
  void read_rows(const GgufTensor& tensor, std::int64_t first, std::int64_t count, float* to) const;

 private:
  friend class GgufParser;
  const GgufKey& key_of_type(std::string_view name, GgufType type) const;
  const GgufKey& key_of_array(std::string_view name, std::string_view of_what, bool (*fits)(GgufType)) const;

  std::string path_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<GgufKey> keys_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> key_index_, tensor_index_;
};

// A memory-mapped file: the time to open it is proportional to its header.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path) : file_(path), contents_(path, file_.bytes()) {}  // throws qkv::FileError
  const Gguf& operator*() const noexcept { return contents_; }
  const Gguf* operator->() const noexcept { return &contents_; }

 private:
  MappedFile file_;
  Gguf contents_;
};

// Whether a file starts with the GGUF magic. False if it cannot be read.
bool is_gguf_file(const std::string& path) noexcept;

}  // namespace qkv
