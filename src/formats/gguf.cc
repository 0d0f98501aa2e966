// SPDX-License-Identifier: Apache-2.0
// Access to the keys and tensors of a GGUF file by name and type.
#include "formats/gguf.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "core/block_types.h"
#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};

constexpr GgufTensorType known(std::uint32_t id, std::string_view name, DType type) {
  return {id, name, block_size(type).elements, block_size(type).bytes, type};
}
constexpr GgufTensorType kTensorTypes[] = {
    known(0, "F32", DType::f32),    known(1, "F16", DType::f16),    known(2, "Q4_0", DType::q4_0),
    known(3, "Q4_1", DType::q4_1),  known(6, "Q5_0", DType::q5_0),  known(7, "Q5_1", DType::q5_1),
    known(8, "Q8_0", DType::q8_0),  {10, "Q2_K", 256, 84, {}},      {11, "Q3_K", 256, 110, {}},
    known(12, "Q4_K", DType::q4_k), known(13, "Q5_K", DType::q5_k), known(14, "Q6_K", DType::q6_k),
    {15, "Q8_K", 256, 292, {}},     {16, "IQ2_XXS", 256, 66, {}},   {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},   {19, "IQ1_S", 256, 50, {}},     {20, "IQ4_NL", 32, 18, {}},
    {21, "IQ3_S", 256, 110, {}},    {22, "IQ2_S", 256, 82, {}},     {23, "IQ4_XS", 256, 136, {}},
    {24, "I8", 1, 1, {}},           {25, "I16", 1, 2, {}},          {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},          {28, "F64", 1, 8, {}},          {29, "IQ1_M", 256, 56, {}},
    known(30, "BF16", DType::bf16), {34, "TQ1_0", 256, 54, {}},     {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},      {40, "NVFP4", 64, 36, {}},      {41, "Q1_0", 128, 18, {}},
};

bool is_integer(GgufType type) noexcept {
  return type <= GgufType::i32 || type == GgufType::u64 || type == GgufType::i64;
}
bool is_string(GgufType type) noexcept { return type == GgufType::string; }
bool is_f32(GgufType type) noexcept { return type == GgufType::f32; }

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Integers above 63 bits saturate.
std::int64_t load_integer(GgufType type, const std::byte* from) noexcept {
  switch (type) {
    case GgufType::u8:
      return load<std::uint8_t>(from);
    case GgufType::i8:
      return load<std::int8_t>(from);
    case GgufType::u16:
      return load<std::uint16_t>(from);
    case GgufType::i16:
      return load<std::int16_t>(from);
    case GgufType::u32:
      return load<std::uint32_t>(from);
    case GgufType::i32:
      return load<std::int32_t>(from);
    case GgufType::u64: {
      constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
      const auto value = load<std::uint64_t>(from);
      return value > static_cast<std::uint64_t>(kMax) ? kMax : static_cast<std::int64_t>(value);
    }
    default:
      return load<std::int64_t>(from);
  }
}

std::string found_type(const GgufKey& key) {
  if (key.type != GgufType::array) return "found " + std::string(gguf_type_name(key.type));
  return "found an array of " + std::string(gguf_type_name(key.element));
}

}  // namespace

std::string_view gguf_type_name(GgufType type) noexcept { return kTypeNames[static_cast<std::size_t>(type)]; }

const GgufTensorType* gguf_tensor_type(std::uint32_t id) noexcept {
  for (const GgufTensorType& type : kTensorTypes)
    if (type.id == id) return &type;
  return nullptr;
}

const GgufTensorType& gguf_tensor_type(DType type) noexcept {
  const GgufTensorType* found = kTensorTypes;
  while (found->type != type) ++found;
  return *found;
}

std::int64_t GgufTensor::rows() const noexcept {
  std::int64_t rows = 1;
  for (std::size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
  return rows;
}

const GgufKey* Gguf::find_key(std::string_view name) const noexcept {
  const auto found = key_index_.find(name);
  return found == key_index_.end() ? nullptr : &keys_[found->second];
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const noexcept {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

void Gguf::fail_key(std::string_view key, const std::string& reason) const {
  const GgufKey* found = find_key(key);
  throw FileError(path_, found ? found->offset : -1, "key " + in_quotes(key) + ": " + reason);
}

const GgufKey& Gguf::key_of_type(std::string_view name, GgufType type) const {
  const GgufKey* key = find_key(name);
  if (!key) fail_key(name, "is missing");
  if (key->type != type) fail_key(name, "must be a " + std::string(gguf_type_name(type)) + "; " + found_type(*key));
  return *key;
}

const GgufKey& Gguf::key_of_array(std::string_view name, std::string_view of_what, bool (*fits)(GgufType)) const {
  const GgufKey* key = find_key(name);
  if (!key) fail_key(name, "is missing");
  if (key->type != GgufType::array || !fits(key->element))
    fail_key(name, "must be an array of " + std::string(of_what) + "; " + found_type(*key));
  return *key;
}

std::int64_t Gguf::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  const GgufKey* key = find_key(name);
  if (!key) fail_key(name, "is missing");
  if (!is_integer(key->type)) fail_key(name, "must be a whole number; " + found_type(*key));
  const std::int64_t value = load_integer(key->type, key->bytes.data());
  if (value < least || value > most)
    fail_key(name,
             "must be " + std::to_string(least) + " to " + std::to_string(most) + "; found " + std::to_string(value));
  return value;
}

double Gguf::number(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) fail_key(name, "is missing");
  if (key->type != GgufType::f32 && key->type != GgufType::f64)
    fail_key(name, "must be f32 or f64; " + found_type(*key));
  const double value = key->type == GgufType::f32 ? load<float>(key->bytes.data()) : load<double>(key->bytes.data());
  if (!std::isfinite(value)) fail_key(name, "must be finite; found " + std::to_string(value));
  return value;
}

bool Gguf::boolean(std::string_view name) const {
  return key_of_type(name, GgufType::boolean).bytes[0] != std::byte{0};
}

std::string_view Gguf::string(std::string_view name) const {
  const GgufKey& key = key_of_type(name, GgufType::string);
  return {reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()};
}

std::vector<std::string_view> Gguf::strings(std::string_view name) const {
  const GgufKey& key = key_of_array(name, "strings", is_string);
  std::vector<std::string_view> values;
  const std::byte* at = key.bytes.data();  // lengths were checked when the file was opened
  for (std::uint64_t i = 0; i < key.count; ++i) {
    const auto length = load<std::uint64_t>(at);
    values.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return values;
}

std::vector<std::int64_t> Gguf::integers(std::string_view name) const {
  const GgufKey& key = key_of_array(name, "whole numbers", is_integer);
  std::vector<std::int64_t> values;
  const std::uint64_t size = key.count ? key.bytes.size() / key.count : 0;
  for (std::uint64_t i = 0; i < key.count; ++i)
    values.push_back(load_integer(key.element, key.bytes.data() + i * size));
  return values;
}

std::vector<float> Gguf::floats(std::string_view name) const {
  const GgufKey& key = key_of_array(name, "f32", is_f32);
  std::vector<float> values(key.count);
  if (key.count) std::memcpy(values.data(), key.bytes.data(), key.bytes.size());
  return values;
}

void Gguf::read_rows(const GgufTensor& tensor, std::int64_t first, std::int64_t count, float* to) const {
  if (!tensor.type->type)
    throw FileError(
        path_, tensor.offset,
        "tensor " + in_quotes(tensor.name) + ": type " + std::string(tensor.type->name) + " is not supported");
  const std::int64_t size = row_bytes(*tensor.type->type, tensor.row());
  dequantise_row(*tensor.type->type, tensor.bytes.data() + first * size, count * tensor.row(), to);
}

bool is_gguf_file(const std::string& path) noexcept {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             [](std::FILE* f) { return std::fclose(f); });
  char magic[4] = {};
  return file && std::fread(magic, 1, sizeof magic, file.get()) == sizeof magic && std::memcmp(magic, "GGUF", 4) == 0;
}

}  // namespace qkv
