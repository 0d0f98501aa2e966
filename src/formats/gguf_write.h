// SPDX-License-Identifier: Apache-2.0
// Writer of GGUF files, version 3.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_types.h"

namespace qkv {

// Collects keys and the tensor directory, then writes the file in one pass. Throws std::invalid_argument for anything
// that readers would reject: a duplicate name, one that is too long or has a zero byte, or a row size that is not a
// multiple of the block size.
class GgufWriter {
 public:
  void u32(std::string_view key, std::uint32_t value);
  void f32(std::string_view key, float value);
  void boolean(std::string_view key, bool value);
  void string(std::string_view key, std::string_view value);
  void strings(std::string_view key, std::span<const std::string> values);
  void i32s(std::string_view key, std::span<const std::int32_t> values);
  void f32s(std::string_view key, std::span<const float> values);

  // Row r of the tensor as f32, to [dims[0]]. Called once per row, from any thread.
  using Row = std::function<void(std::int64_t r, float* to)>;
  // dims: 1 to 4 sizes, fastest-varying first; type must be writable.
  void tensor(std::string_view name, std::vector<std::int64_t> dims, DType type, Row row);

  // Atomic. Throws qkv::FileError, and std::invalid_argument for non-finite values in block-quantised tensors.
  void write(const std::string& path) const;
  std::string bytes() const;  // the same in memory

 private:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> dims;
    DType type;
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
