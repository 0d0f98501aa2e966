// SPDX-License-Identifier: Apache-2.0
#include "core/block_types.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "core/float_types.h"

namespace qkv {
namespace {

constexpr DType kRowTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                               DType::q5_1, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k};

constexpr std::int64_t kSmall = 32;  // elements per block

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float half(const std::byte* from) noexcept { return widen(load<f16>(from)); }
unsigned bits(std::byte b) noexcept { return std::to_integer<unsigned>(b); }

template <class T>
void store(T value, std::byte* to) noexcept {
  std::memcpy(to, &value, sizeof value);
}

// Nibbles: elements 0 to 15 are the low nibbles of the 16 bytes, 16 to 31 the high ones.
unsigned nibble(const std::byte* quants, std::int64_t i) noexcept {
  return i < 16 ? bits(quants[i]) & 15u : bits(quants[i - 16]) >> 4;
}

void from_q4_0(const std::byte* b, float* to) noexcept {
  const float d = half(b);
  for (std::int64_t i = 0; i < kSmall; ++i) to[i] = d * static_cast<float>(static_cast<int>(nibble(b + 2, i)) - 8);
}

void from_q4_1(const std::byte* b, float* to) noexcept {
  const float d = half(b), m = half(b + 2);
  for (std::int64_t i = 0; i < kSmall; ++i) to[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}

// Bit i of `high` is the fifth bit of element i.
unsigned five_bits(std::uint32_t high, const std::byte* quants, std::int64_t i) noexcept {
  return nibble(quants, i) | ((high >> i) & 1u) << 4;
}

void from_q5_0(const std::byte* b, float* to) noexcept {
  const float d = half(b);
  const auto high = load<std::uint32_t>(b + 2);
  for (std::int64_t i = 0; i < kSmall; ++i)
    to[i] = d * static_cast<float>(static_cast<int>(five_bits(high, b + 6, i)) - 16);
}

void from_q5_1(const std::byte* b, float* to) noexcept {
  const float d = half(b), m = half(b + 2);
  const auto high = load<std::uint32_t>(b + 4);
  for (std::int64_t i = 0; i < kSmall; ++i) to[i] = d * static_cast<float>(five_bits(high, b + 8, i)) + m;
}

void from_q8_0(const std::byte* b, float* to) noexcept {
  const float d = half(b);
  for (std::int64_t i = 0; i < kSmall; ++i) to[i] = d * static_cast<float>(load<std::int8_t>(b + 2 + i));
}

// The scale and minimum of sub-block j of 8, six bits each, packed in 12 bytes.
struct ScaleAndMinimum {
  unsigned scale, minimum;
};
ScaleAndMinimum packed_scale(const std::byte* s, int j) noexcept {
  if (j < 4) return {bits(s[j]) & 63u, bits(s[j + 4]) & 63u};
  return {(bits(s[j + 4]) & 15u) | (bits(s[j - 4]) >> 6) << 4, bits(s[j + 4]) >> 4 | (bits(s[j]) >> 6) << 4};
}

// 8 sub-blocks of 32; each run of 32 bytes contains two of them, one in the low nibbles, the next in the high ones.
// With fifth bits, bit j of byte i of `high` is the fifth bit of element i of sub-block j.
void from_scaled_nibbles(const std::byte* b, const std::byte* high, const std::byte* quants, float* to) noexcept {
  const float d = half(b), dmin = half(b + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMinimum s = packed_scale(b + 4, j);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    const std::byte* run = quants + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      unsigned q = j % 2 ? bits(run[i]) >> 4 : bits(run[i]) & 15u;
      if (high) q |= ((bits(high[i]) >> j) & 1u) << 4;
      to[j * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void from_q4_k(const std::byte* b, float* to) noexcept { from_scaled_nibbles(b, nullptr, b + 16, to); }
void from_q5_k(const std::byte* b, float* to) noexcept { from_scaled_nibbles(b, b + 16, b + 48, to); }

// Two halves of 128: low four bits in 64 bytes, upper two in 32, one scale per 16 elements.
void from_q6_k(const std::byte* b, float* to) noexcept {
  const float d = half(b + 208);
  for (int n = 0; n < 2; ++n) {
    const std::byte *low = b + n * 64, *high = b + 128 + n * 32, *scales = b + 192 + n * 8;
    for (int i = 0; i < 128; ++i) {
      const unsigned byte = bits(low[i % 64]), four = i < 64 ? byte & 15u : byte >> 4;
      const unsigned two = (bits(high[i % 32]) >> (i / 32 * 2)) & 3u;
      const float scale = d * static_cast<float>(load<std::int8_t>(scales + i / 16));
      to[n * 128 + i] = scale * static_cast<float>(static_cast<int>(four | two << 4) - 32);
    }
  }
}

template <class T>
void widen_row(const std::byte* from, std::int64_t elements, float* to) noexcept {
  for (std::int64_t i = 0; i < elements; ++i) to[i] = widen(load<T>(from + i * static_cast<std::int64_t>(sizeof(T))));
}
template <class T>
void narrow_row(const float* from, std::int64_t elements, std::byte* to) noexcept {
  for (std::int64_t i = 0; i < elements; ++i) store(narrow<T>(from[i]), to + i * static_cast<std::int64_t>(sizeof(T)));
}

template <class Convert>
void each_block(std::int64_t count, std::int64_t elements, std::int64_t bytes, const std::byte* from, float* to,
                Convert convert) noexcept {
  for (std::int64_t i = 0; i < count; ++i) convert(from + i * bytes, to + i * elements);
}

float inverse(float d) noexcept { return d == 0 ? 0.0f : 1.0f / d; }

// x in 0 ... most, truncated to an integer. If the scale is so small that its inverse overflows, x exceeds that range.
unsigned whole(float x, float most) noexcept { return static_cast<unsigned>(x > 0 ? std::min(x, most) : 0.0f); }

template <class Quant>
void store_nibbles(Quant quant, std::byte* to) noexcept {
  for (std::int64_t i = 0; i < 16; ++i) to[i] = static_cast<std::byte>(quant(i) | quant(i + 16) << 4);
}

void to_q8_0(const float* x, std::byte* b) noexcept {
  float most = 0;
  for (std::int64_t i = 0; i < kSmall; ++i) most = std::max(most, std::fabs(x[i]));
  const float d = most / 127.0f, id = inverse(d);
  store(narrow<f16>(d), b);
  for (std::int64_t i = 0; i < kSmall; ++i) {
    const float q = std::clamp(std::round(x[i] * id), -128.0f, 127.0f);
    store(static_cast<std::int8_t>(q == q ? q : 0.0f), b + 2 + i);
  }
}

// The number with the largest magnitude maps exactly to -8.
void to_q4_0(const float* x, std::byte* b) noexcept {
  float extreme = x[0];
  for (std::int64_t i = 1; i < kSmall; ++i)
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  const float d = extreme / -8.0f, id = inverse(d);
  store(narrow<f16>(d), b);
  store_nibbles([&](std::int64_t i) { return whole(x[i] * id + 8.5f, 15.0f); }, b + 2);
}

void to_q4_1(const float* x, std::byte* b) noexcept {
  const auto [least, most] = std::minmax_element(x, x + kSmall);
  const float m = *least, d = (*most - m) / 15.0f, id = inverse(d);
  store(narrow<f16>(d), b);
  store(narrow<f16>(m), b + 2);
  store_nibbles([&](std::int64_t i) { return whole((x[i] - m) * id + 0.5f, 15.0f); }, b + 4);
}

}  // namespace

std::optional<DType> row_type_from_name(std::string_view name) noexcept {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const DType type : kRowTypes) {
    const std::string_view known = dtype_name(type);
    if (std::equal(name.begin(), name.end(), known.begin(), known.end(), same)) return type;
  }
  return std::nullopt;
}

float q8_0_element(const std::byte* row, std::int64_t i) noexcept {
  const std::byte* block = row + row_bytes(DType::q8_0, i);
  return half(block) * static_cast<float>(load<std::int8_t>(block + 2 + i % kSmall));
}

void dequantise_row(DType type, const std::byte* from, std::int64_t elements, float* to) noexcept {
  const BlockSize format = block_size(type);
  const auto blocks = [&](auto convert) {
    each_block(elements / format.elements, format.elements, format.bytes, from, to, convert);
  };
  switch (type) {
    case DType::f32:
      if (elements > 0) std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(float));
      return;
    case DType::f16:
      return widen_row<f16>(from, elements, to);
    case DType::bf16:
      return widen_row<bf16>(from, elements, to);
    case DType::q4_0:
      return blocks(from_q4_0);
    case DType::q4_1:
      return blocks(from_q4_1);
    case DType::q5_0:
      return blocks(from_q5_0);
    case DType::q5_1:
      return blocks(from_q5_1);
    case DType::q8_0:
      return blocks(from_q8_0);
    case DType::q4_k:
      return blocks(from_q4_k);
    case DType::q5_k:
      return blocks(from_q5_k);
    case DType::q6_k:
      return blocks(from_q6_k);
    default:
      return;  // not a row type
  }
}

bool can_quantise(DType type) noexcept {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16 || type == DType::q8_0 ||
         type == DType::q4_0 || type == DType::q4_1;
}

void quantise_row(DType type, const float* from, std::int64_t elements, std::byte* to) noexcept {
  const BlockSize format = block_size(type);
  const auto blocks = [&](auto convert) {
    for (std::int64_t i = 0; i < elements / format.elements; ++i)
      convert(from + i * format.elements, to + i * format.bytes);
  };
  switch (type) {
    case DType::f32:
      if (elements > 0) std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(float));
      return;
    case DType::f16:
      return narrow_row<f16>(from, elements, to);
    case DType::bf16:
      return narrow_row<bf16>(from, elements, to);
    case DType::q8_0:
      return blocks(to_q8_0);
    case DType::q4_0:
      return blocks(to_q4_0);
    case DType::q4_1:
      return blocks(to_q4_1);
    default:
      return;  // not writable
  }
}

}  // namespace qkv
