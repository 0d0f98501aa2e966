// SPDX-License-Identifier: Apache-2.0
// Builds GGUF files byte by byte, valid or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::test {

class GgufBytes {
 public:
  template <class T>
  static std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string text(std::string_view t) { return raw<std::uint64_t>(t.size()) + std::string(t); }

  GgufBytes& key(std::string_view name, std::uint32_t type, const std::string& value) {
    keys_ += text(name) + raw(type) + value;
    ++n_keys_;
    return *this;
  }
  GgufBytes& u32(std::string_view name, std::uint32_t value) { return key(name, 4, raw(value)); }
  GgufBytes& f32(std::string_view name, float value) { return key(name, 6, raw(value)); }
  GgufBytes& boolean(std::string_view name, bool value) { return key(name, 7, raw<std::uint8_t>(value)); }
  GgufBytes& string(std::string_view name, std::string_view value) { return key(name, 8, text(value)); }
  GgufBytes& strings(std::string_view name, const std::vector<std::string>& values) {
    std::string all = raw<std::uint32_t>(8) + raw<std::uint64_t>(values.size());
    for (const std::string& value : values) all += text(value);
    return key(name, 9, all);
  }
  template <class T>
  GgufBytes& array(std::string_view name, std::uint32_t element, const std::vector<T>& values) {
    std::string all = raw(element) + raw<std::uint64_t>(values.size());
    for (const T& value : values) all += raw(value);
    return key(name, 9, all);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                    const std::string& data) {
    return tensor_at(name, dims, type, data_.size(), data);
  }
  GgufBytes& tensor_at(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                       std::uint64_t offset, const std::string& data) {
    tensors_ += text(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t size : dims) tensors_ += raw(size);
    tensors_ += raw(type) + raw(offset);
    ++n_tensors_;
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }

  std::string bytes() const {
    std::string file = "GGUF" + raw(version) + raw(n_tensors_) + raw(n_keys_) + keys_ + tensors_;
    if (n_tensors_) file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data_;
  }

  std::uint32_t version = 3;
  std::size_t alignment = 32;

 private:
  std::string keys_, tensors_, data_;
  std::uint64_t n_keys_ = 0, n_tensors_ = 0;
};

}  // namespace qkv::test
