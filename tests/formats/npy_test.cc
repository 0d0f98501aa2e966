// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "formats/scratch.h"
#include "qkv/array_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::vector<T> values(const Tensor& tensor) {
  const T* data = tensor.data<T>();
  return std::vector<T>(data, data + tensor.size());
}

template <class T>
std::string raw(std::initializer_list<T> items) {
  std::string bytes;
  for (T item : items) bytes.append(reinterpret_cast<const char*>(&item), sizeof item);
  return bytes;
}

// A file with this dictionary, of version 1.0 by default.
std::string npy(const std::string& dictionary, const std::string& data, int major = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += '\0';
  const auto length = static_cast<std::uint32_t>(dictionary.size());
  file.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return file + dictionary + data;
}

const std::string kMatrix = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";

std::string error_of(const std::string& path) {
  try {
    load_npy(path);
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), path);
    return error.what();
  }
  return "no error";
}

TEST(LoadNpy, ReadsEveryVersion) {
  const Scratch scratch;
  for (int major : {1, 2, 3}) {
    const Tensor t = load_npy(scratch.file("a.npy", npy(kMatrix, raw({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}), major)));
    EXPECT_EQ(t.shape(), Dims({2, 3}));
    EXPECT_THAT(values<float>(t), ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(LoadNpy, ConvertsFortranOrderToRowMajor) {
  const Scratch scratch;
  // [2, 3, 2]; the first axis varies fastest.
  const std::string header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 2)}";
  const Tensor t = load_npy(scratch.file("a.npy", npy(header, raw({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}))));
  EXPECT_THAT(values<std::int32_t>(t), ElementsAre(0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11));
}

TEST(LoadNpy, ReadsEveryType) {
  const Scratch scratch;
  const auto load = [&](const std::string& descr, const std::string& data) {
    return load_npy(
        scratch.file("a.npy", npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2,)}", data)));
  };
  EXPECT_THAT(values<double>(load("<f8", raw({0.1, -2.0}))), ElementsAre(0.1, -2.0));
  EXPECT_THAT(values<std::int64_t>(load("<i8", raw({std::int64_t{-1}, std::int64_t{1} << 40}))),
              ElementsAre(-1, std::int64_t{1} << 40));
  EXPECT_THAT(values<std::int32_t>(load("<i4", raw({-7, 7}))), ElementsAre(-7, 7));
  EXPECT_THAT(values<bool>(load("|b1", std::string("\x02\x00", 2))), ElementsAre(true, false));
  const Tensor half = load("<f2", raw<std::uint16_t>({0x3C00, 0xC000}));
  EXPECT_EQ(to_f32(half.data<f16>()[0]), 1);
  EXPECT_EQ(to_f32(half.data<f16>()[1]), -2);
}

TEST(LoadNpy, ReadsScalarsAndEmptyArrays) {
  const Scratch scratch;
  const Tensor scalar =
      load_npy(scratch.file("s.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", raw({4.f}))));
  EXPECT_EQ(scalar.shape().rank(), 0);
  EXPECT_THAT(values<float>(scalar), ElementsAre(4));
  for (const char* order : {"True", "False"}) {
    const std::string header = std::string("{'descr': '<f8', 'fortran_order': ") + order + ", 'shape': (3, 0, 2)}";
    const Tensor empty = load_npy(scratch.file("e.npy", npy(header, "")));
    EXPECT_EQ(empty.shape(), Dims({3, 0, 2}));
    EXPECT_EQ(empty.size(), 0);
  }
}

// Written by numpy 1.24.2: np.save(f, np.asfortranarray(np.array([[1.5, -2], [3, 4]], '<f4'))).
TEST(LoadNpy, ReadsWhatNumpyWrites) {
  std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }";
  header.resize(117, ' ');
  const std::string bytes = npy(header + "\n", raw({1.5f, 3.f, -2.f, 4.f}));
  ASSERT_EQ(bytes.size(), 128u + 16u);
  const Scratch scratch;
  EXPECT_THAT(values<float>(load_npy(scratch.file("a.npy", bytes))), ElementsAre(1.5, -2, 3, 4));
}

TEST(LoadNpy, RefusesEveryTruncationAndTrailingBytes) {
  const Scratch scratch;
  const std::string whole = npy(kMatrix, raw({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(load_npy(scratch.file("a.npy", whole.substr(0, size))), FileError) << size;
  EXPECT_THROW(load_npy(scratch.file("a.npy", whole + '\0')), FileError);
}

TEST(LoadNpy, SurvivesAnyByteChange) {
  const Scratch scratch;
  const std::string whole = npy(kMatrix, raw({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}));
  const Random random(7);
  for (std::size_t at = 0; at + 24 < whole.size(); ++at) {
    std::string bytes = whole;
    for (std::uint64_t draw = 0; draw < 12; ++draw) {
      bytes[at] = static_cast<char>(random.below(at * 12 + draw, 256));
      try {
        EXPECT_LE(load_npy(scratch.file("a.npy", bytes)).bytes(), 24u);
      } catch (const FileError&) {
      }
    }
  }
}

TEST(LoadNpy, RefusesHostileHeaders) {
  const Scratch scratch;
  const auto refused = [&](const std::string& dictionary) {
    return error_of(scratch.file("a.npy", npy(dictionary, raw({1.f, 2.f}))));
  };
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  // Products that wrap to 8 bytes or to 0, and sizes past 64 bits.
  EXPECT_THAT(refused(start + "(4611686018427387904, 4)}"), HasSubstr("too many elements"));
  EXPECT_THAT(refused(start + "(4611686018427387905, 4)}"), HasSubstr("too many elements"));
  EXPECT_THAT(refused(start + "(0, 4611686018427387904, 4)}"), HasSubstr("too many elements"));
  EXPECT_THAT(refused(start + "(4611686018427387906,)}"), HasSubstr("does not fit"));
  EXPECT_THAT(refused(start + "(18446744073709551618,)}"), HasSubstr("64 bits"));
  EXPECT_THAT(refused(start + "(-2,)}"), HasSubstr("a non-negative integer"));
  EXPECT_THAT(refused(start + "(1, 1, 1, 1, 1, 1, 1, 1, 2)}"), HasSubstr("at most 8 dimensions"));
  EXPECT_THAT(refused(start + "(2)}"), HasSubstr("must have ',' here"));
  EXPECT_THAT(refused(start + "(2.0,)}"), HasSubstr("must have"));
  EXPECT_THAT(refused(start + "(2,)} x"), HasSubstr("continues after"));
  EXPECT_THAT(refused(start + "(2,), 'shape': (2,)}"), HasSubstr("duplicate key"));
  EXPECT_THAT(refused(start + "(2,), 'more': 1}"), HasSubstr("unknown"));
  EXPECT_THAT(refused("{'descr': '<f4', 'shape': (2,)}"), HasSubstr("must have descr"));
  EXPECT_THAT(refused("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}"), HasSubstr("found '>f4'"));
  EXPECT_THAT(refused("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}"), HasSubstr("found '|O'"));
  EXPECT_THAT(refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}"), HasSubstr("structured"));
  EXPECT_THAT(refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}"), HasSubstr("True or False"));
  EXPECT_THAT(refused("{'descr: <f4"), HasSubstr("is not terminated"));
  EXPECT_THAT(refused(""), HasSubstr("'{'"));
  EXPECT_THAT(error_of(scratch.file("a.npy", "\x93NUMPY\x02\x01" + std::string(90, ' '))), HasSubstr("found 2.1"));
  EXPECT_THAT(error_of(scratch.file("a.npy", "PK\x03\x04" + std::string(90, ' '))), HasSubstr("is not a .npy file"));
  // A header of 4 GiB in a file of 20 bytes.
  EXPECT_THAT(error_of(scratch.file("a.npy", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'", 20))),
              HasSubstr("at byte 8: the header has 4294967295 bytes"));
}

TEST(LoadNpy, NamesTheMissingFile) {
  const Scratch scratch;
  EXPECT_THAT(error_of(scratch.path("none.npy")), HasSubstr("No such file"));
  EXPECT_THAT(error_of(scratch.path(".")), HasSubstr("directory"));
}

TEST(SaveNpy, WritesTheBytesNumpyWrites) {
  const Scratch scratch;
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  save_npy(scratch.path("a.npy"), view(data.data(), {2, 3}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(117, ' ');
  EXPECT_EQ(read_all(scratch.path("a.npy")), npy(header + "\n", raw({1.f, 2.f, 3.f, 4.f, 5.f, 6.f})));
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(SaveNpy, RoundTripsEveryTypeAndRank) {
  const Scratch scratch;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::i32, DType::boolean})
    for (const Dims& shape :
         {Dims{}, Dims{7}, Dims{1, 5}, Dims{3, 0}, Dims{2, 3, 4, 5}, Dims{1, 2, 1, 2, 1, 2, 1, 3}}) {
      Tensor tensor(shape, dtype);
      for (std::size_t i = 0; i < tensor.bytes(); ++i) static_cast<unsigned char*>(tensor.raw())[i] = i % 3 == 0;
      save_npy(scratch.path("a.npy"), tensor);
      const Tensor back = load_npy(scratch.path("a.npy"));
      EXPECT_EQ(back.shape(), shape);
      ASSERT_EQ(back.dtype(), dtype);
      EXPECT_EQ(std::memcmp(back.raw(), tensor.raw(), tensor.bytes()), 0);
    }
}

TEST(SaveNpy, AcceptsStridedViews) {
  const Scratch scratch;
  const std::vector<std::int32_t> data{0, 1, 2, 3, 4, 5};
  const auto saved = [&](const ConstView& v) {
    save_npy(scratch.path("a.npy"), v);
    return values<std::int32_t>(load_npy(scratch.path("a.npy")));
  };
  EXPECT_THAT(saved(swap_axes(view(data.data(), {2, 3}), 0, 1)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(saved({data.data() + 5, DType::i32, {6}, {-1}}), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(saved({data.data() + 1, DType::i32, {2, 2}, {0, 3}}), ElementsAre(1, 4, 1, 4));
  EXPECT_THAT(saved({data.data(), DType::i32, {3, 1, 1}, {2, 77, 99}}), ElementsAre(0, 2, 4));
}

TEST(SaveNpy, WritesBf16AsF32) {
  const Scratch scratch;
  Tensor tensor({2, 5000}, DType::bf16);
  for (int i = 0; i < 10000; ++i) tensor.data<bf16>()[i] = to_bf16(static_cast<float>(i % 200));
  save_npy(scratch.path("a.npy"), tensor);
  const Tensor back = load_npy(scratch.path("a.npy"));
  ASSERT_EQ(back.dtype(), DType::f32);
  EXPECT_EQ(back.shape(), Dims({2, 5000}));
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(back.data()[i], static_cast<float>(i % 200));
}

TEST(SaveNpy, RefusesUnwritablePathsAndEmptyViews) {
  const Scratch scratch;
  EXPECT_THROW(save_npy(scratch.path("none/a.npy"), Tensor({2})), FileError);
  EXPECT_THROW(save_npy("/dev/null", Tensor({2})), FileError);
  EXPECT_THROW(save_npy(scratch.path("a.npy"), ConstView()), std::invalid_argument);
  EXPECT_EQ(scratch.entries(), 0);
}

}  // namespace
}  // namespace qkv
