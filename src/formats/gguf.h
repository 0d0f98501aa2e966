// SPDX-License-Identifier: Apache-2.0
// GGUF files, versions 2 and 3, as plain data: typed keys, a directory of tensors, and the bytes in place
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Nothing here knows what a model is.
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
  GgufType element = GgufType::u8;  // of an array; never array
  std::uint64_t count = 0;          // elements of an array
  std::span<const std::byte>
      bytes;                // the number, the characters of the string, the elements of the array as they stand
  std::int64_t offset = 0;  // of the value in the file
};

// An element type that ggml knows. Those without a DType can be listed, not read.
struct GgufTensorType {
  std::uint32_t id;
  std::string_view name;  // "Q4_K"
  std::int64_t elements;  // in a block
  std::int64_t bytes;     // of a block
  std::optional<DType> type;
};
const GgufTensorType* gguf_tensor_type(std::uint32_t id) noexcept;  // null: there is none
const GgufTensorType& gguf_tensor_type(DType type) noexcept;

struct GgufTensor {
  std::string_view name;
  const GgufTensorType* type = nullptr;
  std::vector<std::int64_t> dims;    // 1 to 4, the fastest first, as in the file
  std::span<const std::byte> bytes;  // all rows, one after the other
  std::int64_t offset = 0;           // of the directory entry in the file

  std::int64_t row() const noexcept { return dims[0]; }  // elements of a row
  std::int64_t rows() const noexcept;
};

// The contents of a file that someone else holds in memory and that must outlive this. All of it but the tensors'
// bytes is checked when it is made: names are unique, every value and tensor lies inside the file, tensors follow each
// other without hole or overlap but for alignment. Memory taken is in proportion to the file's header. Immutable.
class Gguf {
 public:
  // `path` is for messages. Throws qkv::FileError with the byte and the rule.
  Gguf(std::string path, std::span<const std::byte> file);

  const std::string& path() const noexcept { return path_; }
  std::uint32_t version() const noexcept { return version_; }
  std::uint64_t alignment() const noexcept { return alignment_; }
  const std::vector<GgufKey>& keys() const noexcept { return keys_; }           // in the order of the file
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }  // likewise
  const GgufKey* find_key(std::string_view name) const noexcept;                // null: there is none
  const GgufTensor* find_tensor(std::string_view name) const noexcept;          // likewise

  bool has(std::string_view key) const noexcept { return find_key(key) != nullptr; }
  // Values, which must be there and of that kind, else qkv::FileError. An integer may be of any width and sign.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  double number(std::string_view key) const;  // f32 or f64, finite
  bool boolean(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> floats(std::string_view key) const;  // of f32
  // Throws qkv::FileError that names the key and, if it is there, its byte.
  [[noreturn]] void fail_key(std::string_view key, const std::string& reason) const;

  // Rows `first` ... `first + count - 1` of a tensor of this file in f32, to [count, row]. Throws qkv::FileError if
  // qkv cannot read its type.
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

// A file read through a mapping: opening takes time in proportion to its header.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path) : file_(path), contents_(path, file_.bytes()) {}  // throws qkv::FileError
  const Gguf& operator*() const noexcept { return contents_; }
  const Gguf* operator->() const noexcept { return &contents_; }

 private:
  MappedFile file_;
  Gguf contents_;
};

// Whether a file begins as GGUF files do, whatever follows. A file that cannot be read does not.
bool is_gguf_file(const std::string& path) noexcept;

}  // namespace qkv
