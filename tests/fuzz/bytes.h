// SPDX-License-Identifier: Apache-2.0
// The input of a fuzz target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qkv::test {

// Decisions decoded from bytes; 0 past the end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  int next() { return used_ < size_ ? data_[used_++] : 0; }
  // At most 256 choices.
  std::int64_t from(std::int64_t least, std::int64_t most) { return least + next() % (most - least + 1); }
  bool one_in(int n) { return next() % n == n - 1; }
  template <class T, std::size_t N>
  const T& pick(const T (&all)[N]) {
    return all[static_cast<std::size_t>(next()) % N];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, used_ = 0;
};

}  // namespace qkv::test
