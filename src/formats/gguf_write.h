// SPDX-License-Identifier: Apache-2.0
// Writing GGUF files, version 3.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_types.h"

namespace qkv {

// Collects keys and the directory of tensors, then writes the file in one pass. Throws std::invalid_argument for what
// no reader would take: a name given twice, too long or with a zero byte, a row that is no multiple of its block.
class GgufWriter {
 public:
  void u32(std::string_view key, std::uint32_t value);
  void f32(std::string_view key, float value);
  void boolean(std::string_view key, bool value);
  void string(std::string_view key, std::string_view value);
  void strings(std::string_view key, std::span<const std::string> values);
  void i32s(std::string_view key, std::span<const std::int32_t> values);
  void f32s(std::string_view key, std::span<const float> values);

  // Row r of the tensor, in f32, to [dims[0]]. Called once for each row, from any thread.
  using Row = std::function<void(std::int64_t r, float* to)>;
  // dims: 1 to 4, the fastest first; type must be writable.
  void tensor(std::string_view name, std::vector<std::int64_t> dims, BlockType type, Row row);

  // Atomically. Throws qkv::FileError, and std::invalid_argument for a number that is not finite and so has no place in
  // a block with a scale.
  void write(const std::string& path) const;
  std::string bytes() const;  // the same in memory

 private:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> dims;
    BlockType type;
    Row row;
    std::uint64_t bytes;
  };
  using Put = std::function<void(const void* data, std::size_t size)>;
  void put_all(const Put& put) const;
  static void put_rows(const Put& put, const Tensor& t);
  void begin_key(std::string_view key, std::uint32_t type);

  std::string keys_;  // as in the file
  std::uint64_t n_keys_ = 0;
  std::vector<std::string> names_;  // of keys
  std::vector<Tensor> tensors_;
};

}  // namespace qkv
