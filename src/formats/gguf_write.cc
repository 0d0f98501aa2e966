// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_write.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/parallel.h"
#include "formats/gguf.h"
#include "formats/in_quotes.h"
#include "os/atomic_file.h"

namespace qkv {
namespace {

constexpr std::uint64_t kAlignment = 32;
constexpr std::uint32_t kVersion = 3;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("[gguf] " + message); }

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append_string(std::string& to, std::string_view text) {
  append(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

std::uint64_t aligned(std::uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

std::uint32_t id_of(GgufType type) { return static_cast<std::uint32_t>(type); }

}  // namespace

void GgufWriter::begin_key(std::string_view key, std::uint32_t type) {
  if (key.empty() || key.size() > 65535 || key.find('\0') != std::string_view::npos ||
      std::find(names_.begin(), names_.end(), key) != names_.end())
    refuse("expected keys of 1 to 65535 bytes, each once; found " + in_quotes(key));
  names_.emplace_back(key);
  append_string(keys_, key);
  append(keys_, type);
  ++n_keys_;
}

void GgufWriter::u32(std::string_view key, std::uint32_t value) {
  begin_key(key, id_of(GgufType::u32));
  append(keys_, value);
}

void GgufWriter::f32(std::string_view key, float value) {
  begin_key(key, id_of(GgufType::f32));
  append(keys_, value);
}

void GgufWriter::boolean(std::string_view key, bool value) {
  begin_key(key, id_of(GgufType::boolean));
  append(keys_, static_cast<std::uint8_t>(value));
}

void GgufWriter::string(std::string_view key, std::string_view value) {
  begin_key(key, id_of(GgufType::string));
  append_string(keys_, value);
}

void GgufWriter::strings(std::string_view key, std::span<const std::string> values) {
  begin_key(key, id_of(GgufType::array));
  append(keys_, id_of(GgufType::string));
  append(keys_, static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) append_string(keys_, value);
}

void GgufWriter::i32s(std::string_view key, std::span<const std::int32_t> values) {
  begin_key(key, id_of(GgufType::array));
  append(keys_, id_of(GgufType::i32));
  append(keys_, static_cast<std::uint64_t>(values.size()));
  for (const std::int32_t value : values) append(keys_, value);
}

void GgufWriter::f32s(std::string_view key, std::span<const float> values) {
  begin_key(key, id_of(GgufType::array));
  append(keys_, id_of(GgufType::f32));
  append(keys_, static_cast<std::uint64_t>(values.size()));
  for (const float value : values) append(keys_, value);
}

void GgufWriter::tensor(std::string_view name, std::vector<std::int64_t> dims, DType type, Row row) {
  const BlockSize block = block_size(type);
  const bool known = std::any_of(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  if (name.empty() || name.size() > 63 || name.find('\0') != std::string_view::npos || known)
    refuse("expected tensor names of 1 to 63 bytes, each once; found " + in_quotes(name));
  if (!can_quantise(type)) refuse("type " + std::string(dtype_name(type)) + " cannot be written");
  if (dims.empty() || dims.size() > 4 || dims[0] % block.elements != 0)
    refuse(in_quotes(name) + " expected 1 to 4 dimensions and rows of a multiple of " + std::to_string(block.elements) +
           " elements for " + std::string(dtype_name(type)) + "; found " + std::to_string(dims.size()) +
           " and rows of " + std::to_string(dims.empty() ? 0 : dims[0]));
  std::int64_t rows = 1;
  for (std::size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
  const auto bytes = static_cast<std::uint64_t>(rows * row_bytes(type, dims[0]));
  tensors_.push_back({std::string(name), std::move(dims), type, std::move(row), bytes});
}

void GgufWriter::put_rows(const Put& put, const Tensor& t) {
  const std::int64_t row = t.dims[0], size = row_bytes(t.type, row);
  const std::int64_t rows = size ? static_cast<std::int64_t>(t.bytes) / size : 0;
  const std::int64_t at_once = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / std::max<std::int64_t>(row, 1));
  std::vector<float> numbers(static_cast<std::size_t>(std::min(rows, at_once) * row));  // [rows at once, row]
  std::vector<std::byte> blocks(static_cast<std::size_t>(std::min(rows, at_once) * size));
  std::vector<char> finite(static_cast<std::size_t>(std::min(rows, at_once)));
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const std::int64_t count = std::min(at_once, rows - first);
    parallel_ranges(count, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        float* from = numbers.data() + r * row;  // [row]
        t.row(first + r, from);
        finite[static_cast<std::size_t>(r)] = std::all_of(from, from + row, [](float x) { return std::isfinite(x); });
        quantise_row(t.type, from, row, blocks.data() + r * size);
      }
    });
    if (block_size(t.type).elements > 1 && std::count(finite.begin(), finite.begin() + count, 0) > 0)
      refuse(in_quotes(t.name) + " expected finite numbers for " + std::string(dtype_name(t.type)) +
             "; found non-finite ones");
    put(blocks.data(), static_cast<std::size_t>(count * size));
  }
}

void GgufWriter::put_all(const Put& put) const {
  std::string head = "GGUF";
  append(head, kVersion);
  append(head, static_cast<std::uint64_t>(tensors_.size()));
  append(head, n_keys_);
  head += keys_;
  std::uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    append_string(head, t.name);
    append(head, static_cast<std::uint32_t>(t.dims.size()));
    for (const std::int64_t size : t.dims) append(head, static_cast<std::uint64_t>(size));
    append(head, gguf_tensor_type(t.type).id);
    append(head, offset);
    offset += aligned(t.bytes);
  }
  head.resize(aligned(head.size()), '\0');
  put(head.data(), head.size());
  for (const Tensor& t : tensors_) {
    put_rows(put, t);
    const std::string padding(aligned(t.bytes) - t.bytes, '\0');
    put(padding.data(), padding.size());
  }
}

void GgufWriter::write(const std::string& path) const {
  AtomicFile file(path);
  put_all([&](const void* data, std::size_t size) { file.write(data, size); });
  file.commit();
}

std::string GgufWriter::bytes() const {
  std::string all;
  put_all([&](const void* data, std::size_t size) { all.append(static_cast<const char*>(data), size); });
  return all;
}

}  // namespace qkv
