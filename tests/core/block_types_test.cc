// SPDX-License-Identifier: Apache-2.0
// Blocks compared with hand-worked values and with the Python package `gguf` (scripts/make_block_golden.py).
#include "core/block_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {
namespace {

std::string golden(const std::string& name) {
  std::ifstream in(std::string(QKV_CORE_GOLDEN_DIR) + "/" + name + ".bin", std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

const std::byte* bytes_of(const std::string& text) { return reinterpret_cast<const std::byte*>(text.data()); }

std::string half_bytes(float x) {
  const f16 h = to_f16(x);
  return {reinterpret_cast<const char*>(&h), 2};
}

TEST(BlockTypes, SizesAndNames) {
  EXPECT_EQ(row_type_from_name("q4_K"), DType::q4_k);
  EXPECT_EQ(row_type_from_name("BF16"), DType::bf16);
  EXPECT_EQ(row_type_from_name("q4"), std::nullopt);
  EXPECT_EQ(row_type_from_name(""), std::nullopt);
  EXPECT_EQ(row_bytes(DType::q8_0, 64), 68);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420);
  EXPECT_EQ(row_bytes(DType::f32, 3), 12);
}

TEST(BlockTypes, DequantisedByHand) {
  float x[256];
  // q4_0: d = 0.5, byte i = i | (15 - i) << 4
  std::string b = half_bytes(0.5f);
  for (int i = 0; i < 16; ++i) b += static_cast<char>(i | (15 - i) << 4);
  dequantise_row(DType::q4_0, bytes_of(b), 32, x);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(x[i], 0.5f * static_cast<float>(i - 8));
    EXPECT_EQ(x[16 + i], 0.5f * static_cast<float>(7 - i));
  }
  // q5_0: only element 20 has its fifth bit set, all nibbles are 3
  b = half_bytes(2.0f) + std::string("\0\0\x10\0", 4) + std::string(16, '\x33');
  dequantise_row(DType::q5_0, bytes_of(b), 32, x);
  EXPECT_EQ(x[19], 2.0f * (3 - 16));
  EXPECT_EQ(x[20], 2.0f * (19 - 16));
  // q4_k: sub-block 5 has scale 0b100011 and minimum 0b010010; bytes 1 and 5 contain their upper two bits, byte 9 the
  // rest
  std::string scales(12, '\0');
  scales[1] = static_cast<char>(0b10 << 6);
  scales[5] = static_cast<char>(0b01 << 6);
  scales[9] = static_cast<char>(0b0011 | 0b0010 << 4);
  b = half_bytes(1.0f) + half_bytes(0.5f) + scales + std::string(128, '\x70');
  dequantise_row(DType::q4_k, bytes_of(b), 256, x);
  EXPECT_EQ(x[5 * 32 + 9], 35.0f * 7 - 0.5f * 18);
  EXPECT_EQ(x[4 * 32 + 9], 0.0f);
}

TEST(BlockTypes, DequantisesLikeThePackageGguf) {
  for (const char* name : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"}) {
    const DType type = row_type_from_name(name).value();
    const std::string blocks = golden(std::string(name) + "_blocks");
    const std::vector<float> expected = floats(golden(std::string(name) + "_values"));
    const auto n = static_cast<std::int64_t>(expected.size());
    ASSERT_GT(n, 0);
    ASSERT_EQ(row_bytes(type, n), static_cast<std::int64_t>(blocks.size()));
    std::vector<float> found(expected.size());
    dequantise_row(type, bytes_of(blocks), n, found.data());
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(found[i], expected[i]) << name << " element " << i;
  }
}

TEST(BlockTypes, QuantisesLikeThePackageGguf) {
  const std::vector<float> numbers = floats(golden("numbers"));
  for (const char* name : {"bf16", "q8_0", "q4_0", "q4_1"}) {
    const DType type = row_type_from_name(name).value();
    ASSERT_TRUE(can_quantise(type));
    const std::string expected = golden(std::string(name) + "_written");
    const auto n = static_cast<std::int64_t>(numbers.size());
    ASSERT_EQ(row_bytes(type, n), static_cast<std::int64_t>(expected.size()));
    std::string found(expected.size(), '\0');
    quantise_row(type, numbers.data(), n, reinterpret_cast<std::byte*>(found.data()));
    const auto size = static_cast<std::size_t>(block_size(type).bytes);
    for (std::size_t i = 0; i < expected.size(); i += size)
      ASSERT_EQ(found.substr(i, size), expected.substr(i, size)) << name << " block " << i / size;
  }
}

TEST(BlockTypes, NumbersRoundTripWithinHalfAStep) {
  const std::vector<float> numbers = floats(golden("numbers"));
  std::vector<float> back(numbers.size());
  const auto n = static_cast<std::int64_t>(numbers.size());
  std::vector<std::byte> row(numbers.size() * 4);
  for (const DType type : {DType::f32, DType::f16}) {
    quantise_row(type, numbers.data(), n, row.data());
    dequantise_row(type, row.data(), n, back.data());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(back[i], numbers[i], type == DType::f32 ? 0 : std::fabs(numbers[i]) * 0x1p-11f + 0x1p-25f);
  }
  quantise_row(DType::q8_0, numbers.data(), n, row.data());
  dequantise_row(DType::q8_0, row.data(), n, back.data());
  for (std::size_t i = 0; i < numbers.size(); i += 32) {
    float most = 0;
    for (std::size_t j = i; j < i + 32; ++j) most = std::max(most, std::fabs(numbers[j]));
    // half a step, plus the rounding of the scale to f16 times 127 steps
    const float step = most / 127;
    for (std::size_t j = i; j < i + 32; ++j)
      EXPECT_NEAR(back[j], numbers[j], step * 0.5f + most * 0x1p-11f + 127 * 0x1p-25f) << j;
  }
}

}  // namespace
}  // namespace qkv
