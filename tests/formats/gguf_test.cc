// SPDX-License-Identifier: Apache-2.0
// The container: what is read, what is refused and at which offset, and files written and read back.
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "formats/gguf_bytes.h"
#include "formats/gguf_write.h"
#include "formats/scratch.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using test::GgufBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Gguf parse(const std::string& bytes) { return Gguf("f.gguf", std::as_bytes(std::span(bytes))); }

// Expects a refusal with this message at this byte.
void expect_refused(const std::string& bytes, std::int64_t offset, const std::string& reason) {
  const std::vector<char> exact(bytes.begin(), bytes.end());  // no spare bytes after the end
  try {
    const Gguf file("f.gguf", std::as_bytes(std::span(exact)));
    ADD_FAILURE() << "accepted, expected: " << reason;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr(reason));
    EXPECT_EQ(error.offset(), offset) << error.what();
  }
}

TEST(Gguf, KeysOfEveryType) {
  GgufBytes b;
  b.key("a.u8", 0, GgufBytes::raw<std::uint8_t>(255)).key("a.i8", 1, GgufBytes::raw<std::int8_t>(-1));
  b.key("a.u16", 2, GgufBytes::raw<std::uint16_t>(65535)).key("a.i16", 3, GgufBytes::raw<std::int16_t>(-2));
  b.u32("a.u32", 7).key("a.i32", 5, GgufBytes::raw<std::int32_t>(-3)).f32("a.f32", 0.5f);
  b.boolean("a.bool", true).string("a.string", "text").strings("a.strings", {"x", "", "yz"});
  b.key("a.u64", 10, GgufBytes::raw(~std::uint64_t{0})).key("a.i64", 11, GgufBytes::raw<std::int64_t>(-4));
  b.key("a.f64", 12, GgufBytes::raw(0.25)).array<std::int16_t>("a.i16s", 3, {1, -1}).array<float>("a.f32s", 6, {1, 2});
  b.array<std::uint8_t>("a.bools", 7, {0, 1}).strings("a.none", {});
  for (const std::uint32_t version : {2u, 3u}) {
    b.version = version;
    const std::string bytes = b.bytes();
    const Gguf file = parse(bytes);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.keys().size(), 17u);
    EXPECT_EQ(file.integer("a.u8", 0, 255), 255);
    EXPECT_EQ(file.integer("a.i8", -9, 0), -1);
    EXPECT_EQ(file.integer("a.u16", 0, 1 << 20), 65535);
    EXPECT_EQ(file.integer("a.i16", -9, 0), -2);
    EXPECT_EQ(file.integer("a.u32", 0, 9), 7);
    EXPECT_EQ(file.integer("a.i32", -9, 0), -3);
    EXPECT_EQ(file.integer("a.i64", -9, 0), -4);
    EXPECT_EQ(file.number("a.f32"), 0.5);
    EXPECT_EQ(file.number("a.f64"), 0.25);
    EXPECT_TRUE(file.boolean("a.bool"));
    EXPECT_EQ(file.string("a.string"), "text");
    EXPECT_THAT(file.strings("a.strings"), ElementsAre("x", "", "yz"));
    EXPECT_THAT(file.integers("a.i16s"), ElementsAre(1, -1));
    EXPECT_THAT(file.floats("a.f32s"), ElementsAre(1.0f, 2.0f));
    EXPECT_TRUE(file.strings("a.none").empty());
    EXPECT_FALSE(file.has("a.other"));
    EXPECT_THROW(file.integer("a.u64", 0, 1 << 30), FileError);
    EXPECT_THROW(file.integer("a.string", 0, 9), FileError);
    EXPECT_THROW(file.string("a.u8"), FileError);
    EXPECT_THROW(file.boolean("a.u8"), FileError);
    EXPECT_THROW(file.number("a.u8"), FileError);
    EXPECT_THROW(file.strings("a.f32s"), FileError);
    EXPECT_THROW(file.integers("a.f32s"), FileError);
    EXPECT_THROW(file.floats("a.other"), FileError);
  }
}

TEST(Gguf, TensorsInPlace) {
  GgufBytes b;
  b.alignment = 64;
  b.u32("general.alignment", 64);
  b.tensor("one", {3, 2}, 0, GgufBytes::raw(1.0f) + std::string(20, '\0'));
  b.tensor("two", {32, 2, 1, 3}, 8, std::string(6 * 34, '\1'));
  b.tensor("k2", {256}, 10, std::string(84, '\2'));
  const std::string bytes = b.bytes();
  const Gguf file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 3u);
  const GgufTensor* two = file.find_tensor("two");
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->type->name, "Q8_0");
  EXPECT_EQ(two->rows(), 6);
  EXPECT_EQ(two->bytes.size(), 6u * 34);
  EXPECT_EQ(static_cast<const void*>(two->bytes.data()), bytes.data() + bytes.size() - 128 - 256);
  float x[6] = {};
  file.read_rows(*file.find_tensor("one"), 0, 2, x);
  EXPECT_EQ(x[0], 1.0f);
  file.read_rows(*file.find_tensor("one"), 1, 1, x);
  EXPECT_EQ(x[0], 0.0f);
  float y[256];
  EXPECT_THROW(file.read_rows(*file.find_tensor("k2"), 0, 1, y), FileError);  // listed, but not readable
  EXPECT_EQ(file.find_tensor("three"), nullptr);
}

TEST(Gguf, EveryTruncationIsRefused) {
  GgufBytes b;
  b.u32("a", 1).string("b", "text").strings("c", {"x", "y"}).array<std::uint8_t>("d", 7, {0, 1});
  b.tensor("t", {4, 2}, 1, std::string(16, '\0')).tensor("u", {32}, 2, std::string(18, '\0'));
  const std::string whole = b.bytes();
  const std::size_t needed = whole.size() - 14;  // the last tensor's padding may be missing
  EXPECT_NO_THROW(parse(whole.substr(0, needed)));
  for (std::size_t size = 0; size < needed; ++size) {
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(Gguf("f.gguf", std::as_bytes(std::span(cut))), FileError) << size;
  }
}

TEST(Gguf, RefusalsNameTheOffset) {
  expect_refused("GGML", 0, "is not a GGUF file");
  GgufBytes old;
  old.version = 1;
  expect_refused(old.bytes(), 4, "only GGUF versions 2 and 3 are supported; found 1");
  old.version = 0x03000000;
  expect_refused(old.bytes(), 4, "big-endian");
  expect_refused(GgufBytes().u32("a", 1).u32("a", 2).bytes(), 24 + 17, "key 'a' occurs twice");
  expect_refused(GgufBytes().u32("", 1).bytes(), 24, "the name of a key is empty");
  expect_refused(GgufBytes().u32(std::string_view("a\0b", 3), 1).bytes(), 24, "zero byte");
  expect_refused(GgufBytes().key("a", 13, "0000").bytes(), 33, "unknown value type 13");
  expect_refused(GgufBytes().key("a", 7, "\2").bytes(), 37, "0 or 1; found 2");
  expect_refused(GgufBytes().key("a", 9, GgufBytes::raw<std::uint32_t>(9) + std::string(12, '\0')).bytes(), 37,
                 "arrays of arrays");
  expect_refused(GgufBytes().u32("general.alignment", 48).bytes(), 24 + 25 + 4, "power of two; found 48");
  expect_refused(GgufBytes().tensor("t", {}, 0, "").bytes(), 24, "expected 1 to 4 dimensions; found 0");
  expect_refused(GgufBytes().tensor("t", {4, 0}, 0, "").bytes(), 24, "a size must be at least 1");
  expect_refused(GgufBytes().tensor("t", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, "").bytes(), 24,
                 "the product of its sizes overflows");
  expect_refused(GgufBytes().tensor("t", {33}, 8, "").bytes(), 24, "multiples of 32 elements; found 33");
  expect_refused(GgufBytes().tensor("t", {4}, 4, "").bytes(), 24, "unknown element type 4");
  expect_refused(GgufBytes().tensor("t", {4}, 0, "").tensor("t", {4}, 0, "").bytes(), 24 + 33, "occurs twice");
  expect_refused(GgufBytes().tensor_at("t", {4}, 0, 32, std::string(64, '\0')).bytes(), 24,
                 "must be at offset 0; found 32");
  expect_refused(GgufBytes().tensor(std::string(64, 'n'), {1}, 0, "0000").bytes(), 24, "may have 63 bytes; found 64");
}

TEST(Gguf, WrittenAndRead) {
  const Scratch scratch;
  std::vector<float> numbers(96);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i));
  const auto rows = [&](std::int64_t r, float* to) { std::memcpy(to, numbers.data() + r * 32, 32 * sizeof(float)); };
  GgufWriter writer;
  writer.string("general.architecture", "none");
  writer.u32("n", 7);
  writer.f32("x", 0.5f);
  writer.boolean("flag", true);
  const std::vector<std::string> words{"a", "", "bc"};
  writer.strings("words", words);
  const std::vector<std::int32_t> ids{-1, 5};
  writer.i32s("ids", ids);
  const std::vector<float> scores{1.5f, -2};
  writer.f32s("scores", scores);
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1})
    writer.tensor(dtype_name(type), {32, 3}, type, rows);
  writer.tensor("odd", {3, 1}, DType::f16, [](std::int64_t, float* to) { to[0] = 1, to[1] = 2, to[2] = 3; });
  writer.write(scratch.path("w.gguf"));
  EXPECT_EQ(scratch.entries(), 1);

  const GgufFile file(scratch.path("w.gguf"));
  EXPECT_EQ(file->string("general.architecture"), "none");
  EXPECT_EQ(file->integer("n", 0, 9), 7);
  EXPECT_EQ(file->number("x"), 0.5);
  EXPECT_TRUE(file->boolean("flag"));
  EXPECT_THAT(file->strings("words"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(file->integers("ids"), ElementsAre(-1, 5));
  EXPECT_THAT(file->floats("scores"), ElementsAre(1.5f, -2.0f));
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.name == "odd") continue;
    std::vector<float> found(96);
    file->read_rows(tensor, 0, 3, found.data());
    const double tolerance = tensor.bytes.size() > 300 ? 0 : tensor.bytes.size() > 96 ? 4e-3 : 0.13;
    for (std::size_t i = 0; i < 96; ++i) EXPECT_NEAR(found[i], numbers[i], tolerance) << tensor.name << " " << i;
  }
  float odd[3];
  file->read_rows(*file->find_tensor("odd"), 0, 1, odd);
  EXPECT_EQ(odd[2], 3.0f);
  EXPECT_TRUE(is_gguf_file(scratch.path("w.gguf")));
  EXPECT_FALSE(is_gguf_file(scratch.path("none")));
  EXPECT_FALSE(is_gguf_file(scratch.file("short", "GG")));
}

TEST(Gguf, TheWriterRefusesUnreadableFiles) {
  const Scratch scratch;
  const auto nothing = [](std::int64_t, float*) {};
  GgufWriter writer;
  writer.u32("a", 1);
  EXPECT_THROW(writer.u32("a", 2), std::invalid_argument);
  EXPECT_THROW(writer.u32("", 2), std::invalid_argument);
  EXPECT_THROW(writer.tensor("t", {33}, DType::q8_0, nothing), std::invalid_argument);
  EXPECT_THROW(writer.tensor("t", {32, 1, 1, 1, 1}, DType::f32, nothing), std::invalid_argument);
  EXPECT_THROW(writer.tensor(std::string(64, 't'), {32}, DType::f32, nothing), std::invalid_argument);
  EXPECT_THROW(writer.tensor("t", {256}, DType::q4_k, nothing), std::invalid_argument);
  writer.tensor("t", {32}, DType::q8_0,
                [](std::int64_t, float* to) { std::fill_n(to, 32, std::numeric_limits<float>::infinity()); });
  EXPECT_THROW(writer.tensor("t", {32}, DType::f32, nothing), std::invalid_argument);
  EXPECT_THROW(writer.write(scratch.path("w.gguf")), std::invalid_argument);
  EXPECT_EQ(scratch.entries(), 0);  // no file is left behind
}

}  // namespace
}  // namespace qkv
