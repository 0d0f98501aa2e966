// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "formats/scratch.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string error_of(const Scratch& scratch, const std::string& header, const std::string& data) {
  const std::string path = scratch.file("a.safetensors", file_of(header, data));
  try {
    SafetensorsFile file(path);
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), path);
    return error.what();
  }
  return "no error";
}

// Four floats: 16 bytes.
std::string floats() {
  const float values[] = {1, -2, 0.5, 4};
  return {reinterpret_cast<const char*>(values), sizeof values};
}

const std::string kOne = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

TEST(SafetensorsFile, ReadsATensor) {
  const Scratch scratch;
  const SafetensorsFile file(scratch.file("a", file_of(kOne + "   ", floats())));
  ASSERT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.tensors()[0].name, "w");
  EXPECT_EQ(file.tensors()[0].dtype, "F32");
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre(2, 2));
  const Tensor w = file.read("w");
  EXPECT_EQ(w.shape(), Dims({2, 2}));
  EXPECT_THAT(std::vector<float>(w.data(), w.data() + 4), ElementsAre(1, -2, 0.5, 4));
  EXPECT_TRUE(file.find("w"));
  EXPECT_FALSE(file.find("v"));
  EXPECT_TRUE(file.metadata().empty());
}

TEST(SafetensorsFile, ReadsOnlyIntoTheExactShapeAndType) {
  const Scratch scratch;
  const SafetensorsFile file(scratch.file("a", file_of(kOne, floats())));
  Tensor good({2, 2}), flat({4}), wide({2, 2}, DType::f64);
  file.read("w", good.view());
  EXPECT_EQ(good.data()[2], 0.5f);
  EXPECT_THROW(file.read("w", flat.view()), FileError);
  EXPECT_THROW(file.read("w", wide.view()), FileError);
  EXPECT_THROW(file.read("v", good.view()), FileError);
  EXPECT_THROW(file.read("v"), FileError);
}

TEST(SafetensorsFile, ReadsMetadataScalarsEmptyTensorsAndOddAddresses) {
  const Scratch scratch;
  const SafetensorsFile file(scratch.file(
      "a", file_of(R"({"__metadata__":{"a":"1","b":"\u00e9"},"e":{"dtype":"F64","shape":[3,0],"data_offsets":[1,1]},)"
                   R"("s":{"dtype":"F32","shape":[],"data_offsets":[1,5]},)"
                   R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})",
                   std::string("\x07", 1) + floats().substr(4, 4))));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("a", "1"), Pair("b", "é")));
  EXPECT_EQ(file.read("s").shape().rank(), 0);
  EXPECT_EQ(file.read("s").data()[0], -2);
  EXPECT_EQ(file.read("e").size(), 0);
  Tensor flag({1}, DType::boolean);
  file.read("b", flag.view());
  EXPECT_EQ(static_cast<const unsigned char*>(flag.raw())[0], 1);
}

TEST(SafetensorsFile, NamesUnsupportedTypesAndRanks) {
  const Scratch scratch;
  const std::string ones = "1,1,1,1,1,1,1,1,1";
  const SafetensorsFile file(scratch.file(
      "a", file_of(R"({"f":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"r":{"dtype":"BOOL","shape":[)" + ones +
                       R"(],"data_offsets":[2,3]}})",
                   "abc")));
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_THROW(file.find("f"), FileError);
  EXPECT_THROW(file.find("r"), FileError);
}

TEST(SafetensorsFile, RefusesInvalidHeaders) {
  const Scratch scratch;
  const auto refused = [&](const std::string& header) { return error_of(scratch, header, floats()); };
  const auto with = [&](const std::string& fields) { return refused("{\"w\":{" + fields + "}}"); };
  EXPECT_THAT(refused(""), HasSubstr("begin with '{'"));
  EXPECT_THAT(refused(" " + kOne), HasSubstr("begin with '{'"));
  EXPECT_THAT(refused("\xEF\xBB\xBF" + kOne), HasSubstr("begin with '{'"));
  EXPECT_THAT(refused(kOne + "{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused(kOne + std::string("\0", 1)), HasSubstr("NUL"));
  EXPECT_THAT(refused("{\"\xFF\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused(R"({"\ud800":{}})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"w\":" + std::string(50000, '[')), HasSubstr("must be an object"));
  EXPECT_THAT(with("\"shape\":" + std::string(50000, '[')), HasSubstr("shape cannot be or contain a list"));
  EXPECT_THAT(refused(R"({"w":1})"), HasSubstr("'w' must be an object"));
  EXPECT_THAT(with(R"("shape":[4],"data_offsets":[0,16])"), HasSubstr("has no dtype"));
  EXPECT_THAT(with(R"("dtype":"F32","data_offsets":[0,16])"), HasSubstr("has no shape"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[4])"), HasSubstr("has no data_offsets"));
  EXPECT_THAT(with(R"("dtype":"F33","shape":[4],"data_offsets":[0,16])"), HasSubstr("unknown type 'F33'"));
  EXPECT_THAT(with(R"("dtype":["F32"],"shape":[4],"data_offsets":[0,16])"), HasSubstr("a list"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"), HasSubstr("a number"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), HasSubstr("a negative number"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[4e0],"data_offsets":[0,16])"), HasSubstr("not a 64-bit integer"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,16])"), HasSubstr("not a 64-bit"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,16])"), HasSubstr("2^63"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[4],"data_offsets":[0])"), HasSubstr("found 1"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[4],"data_offsets":[0,16,16])"), HasSubstr("found more"));
  EXPECT_THAT(with(R"("dtype":"F32","dtype":"I32","shape":[4],"data_offsets":[0,16])"), HasSubstr("twice"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"x":[])"), HasSubstr("unknown field 'x'"));
  EXPECT_THAT(refused(R"({"__metadata__":{"a":1}})"), HasSubstr("must contain strings"));
  EXPECT_THAT(refused(R"({"__metadata__":{"a":"1","a":"2"}})"), HasSubstr("twice"));
  EXPECT_THAT(refused(R"({"__metadata__":[]})"), HasSubstr("must be an object"));
  EXPECT_THAT(refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                      "\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}"),
              HasSubstr("'w' occurs twice"));
}

TEST(SafetensorsFile, RefusesRangesThatDoNotTileTheData) {
  const Scratch scratch;
  const auto entry = [](const std::string& name, const std::string& shape, const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
  };
  const auto refused = [&](const std::string& entries) { return error_of(scratch, "{" + entries + "}", floats()); };
  EXPECT_EQ(refused(entry("a", "4", "0,16")), "no error");
  EXPECT_EQ(refused(entry("b", "3", "4,16") + "," + entry("z", "0,7", "4,4") + "," + entry("a", "1", "0,4")),
            "no error");
  EXPECT_THAT(refused(entry("a", "3", "0,12")), HasSubstr("end at byte 12"));
  EXPECT_THAT(refused(entry("a", "3", "4,16")), HasSubstr("must begin at the end of the previous tensor, 0"));
  EXPECT_THAT(refused(entry("a", "1", "0,4") + "," + entry("b", "2", "8,16")), HasSubstr("previous tensor, 4"));
  EXPECT_THAT(refused(entry("a", "4", "0,16") + "," + entry("b", "4", "0,16")), HasSubstr("previous tensor, 16"));
  EXPECT_THAT(refused(entry("a", "4", "0,16") + "," + entry("b", "0", "8,8")), HasSubstr("previous tensor, 16"));
  EXPECT_THAT(refused(entry("a", "5", "0,20")), HasSubstr("inside the file's 16 bytes"));
  EXPECT_THAT(refused(entry("a", "4", "16,0")), HasSubstr("inside"));
  EXPECT_THAT(refused(entry("a", "0", "18446744073709551615,18446744073709551615")), HasSubstr("inside"));
  EXPECT_THAT(refused(entry("a", "1000,1000", "0,4")), HasSubstr("need 4000000 bytes; found 4"));
  EXPECT_THAT(refused(entry("a", "0", "0,16")), HasSubstr("need 0 bytes; found 16"));
  EXPECT_THAT(refused(entry("a", "", "0,16")), HasSubstr("need 4 bytes; found 16"));
  EXPECT_THAT(refused(entry("a", "4611686018427387904,4", "0,0")), HasSubstr("64 bits"));
  EXPECT_THAT(refused(entry("a", "4611686018427387905", "0,4")), HasSubstr("64 bits"));
  EXPECT_THAT(refused(""), HasSubstr("end at byte 0"));
}

TEST(SafetensorsFile, RefusesHostileLengths) {
  const Scratch scratch;
  for (const std::uint64_t length : {std::uint64_t{58}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63,
                                     std::numeric_limits<std::uint64_t>::max(), std::uint64_t{0}}) {
    std::string bytes = file_of(kOne, "");
    std::memcpy(bytes.data(), &length, 8);
    EXPECT_THROW(SafetensorsFile{scratch.file("a", bytes)}, FileError) << length;
  }
}

TEST(SafetensorsFile, RefusesEveryTruncationAndTrailingBytes) {
  const Scratch scratch;
  const std::string whole = file_of(kOne, floats());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(SafetensorsFile{scratch.file("a", whole.substr(0, size))}, FileError) << size;
  EXPECT_THROW(SafetensorsFile{scratch.file("a", whole + "x")}, FileError);
}

TEST(SafetensorsFile, SurvivesAnyByteChange) {
  const Scratch scratch;
  const std::string whole =
      file_of(R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", floats());
  const Random random(11);
  for (std::size_t at = 0; at + 16 < whole.size(); ++at)
    for (std::uint64_t draw = 0; draw < 12; ++draw) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(random.below(at * 12 + draw, 256));
      try {
        const SafetensorsFile file(scratch.file("a", bytes));
        for (const auto& entry : file.tensors()) EXPECT_EQ(file.read(entry.name).bytes(), 16u);
      } catch (const FileError&) {
      }
    }
}

TEST(WriteSafetensors, WritesTheDocumentedBytes) {
  const Scratch scratch;
  const std::vector<float> w{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> n{7};
  Tensor h({3}, DType::bf16);
  write_safetensors(scratch.path("a"),
                    {{"w", view(w.data(), {2, 3})}, {"h", h}, {"b", view(w.data(), {1})}, {"n", view(n.data(), {})}},
                    {{"format", "qkv"}, {"note", "a \"b\"\n"}});
  const std::string bytes = read_all(scratch.path("a"));
  std::string header =
      R"({"__metadata__":{"format":"qkv","note":"a \"b\"\n"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[12,36]},)"
      R"("h":{"dtype":"BF16","shape":[3],"data_offsets":[36,42]}})";
  while (header.size() % 8) header += ' ';
  ASSERT_EQ(bytes.substr(0, 8 + header.size()), file_of(header, ""));
  EXPECT_EQ(bytes.size(), 8 + header.size() + 42);
  const SafetensorsFile file(scratch.path("a"));
  EXPECT_EQ(file.read("n").data<std::int64_t>()[0], 7);
  EXPECT_EQ(file.read("w").data()[5], 6);
  EXPECT_EQ(file.metadata().at("note"), "a \"b\"\n");
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(WriteSafetensors, WritesStridedAndEmptyViewsAndEmptyFiles) {
  const Scratch scratch;
  const std::vector<float> w{1, 2, 3, 4, 5, 6};
  write_safetensors(scratch.path("a"), {{"t", swap_axes(view(w.data(), {2, 3}), 0, 1)}, {"é/\\", Tensor({0, 4})}});
  const SafetensorsFile file(scratch.path("a"));
  const Tensor t = file.read("t");
  EXPECT_THAT(std::vector<float>(t.data(), t.data() + 6), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_EQ(file.read("é/\\").shape(), Dims({0, 4}));
  write_safetensors(scratch.path("b"), {});
  EXPECT_TRUE(SafetensorsFile(scratch.path("b")).tensors().empty());
}

TEST(WriteSafetensors, RefusesInvalidNames) {
  const Scratch scratch;
  const Tensor t({1});
  EXPECT_THROW(write_safetensors(scratch.path("a"), {{"w", t}, {"w", t}}), std::invalid_argument);
  EXPECT_THROW(write_safetensors(scratch.path("a"), {{"__metadata__", t}}), std::invalid_argument);
  EXPECT_THROW(write_safetensors(scratch.path("a"), {{"\xFF", t}}), std::invalid_argument);
  EXPECT_THROW(write_safetensors(scratch.path("a"), {{"w", t}}, {{"k", "\xC0\x80"}}), std::invalid_argument);
  EXPECT_THROW(write_safetensors(scratch.path("a"), {{"w", ConstView()}}), std::invalid_argument);
  EXPECT_EQ(scratch.entries(), 0);
}

}  // namespace
}  // namespace qkv
