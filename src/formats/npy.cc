// SPDX-License-Identifier: Apache-2.0
// The .npy format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): "\x93NUMPY", two version
// bytes, the length of the header (u16 in version 1, u32 later), the header (a Python dictionary with the keys descr,
// fortran_order and shape), and the elements.
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "formats/elements.h"
#include "formats/in_quotes.h"
#include "os/mapped_file.h"
#include "qkv/array_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLargestHeader = 1 << 20;  // qkv writes < 300 bytes; only structured dtypes need more

struct Header {
  DType dtype = DType::f32;
  bool fortran_order = false;
  Dims shape;
};

// Parses the dictionary. Strict except for what NumPy accepts: spaces anywhere, either quote, keys in any order.
class HeaderParser {
 public:
  HeaderParser(const MappedFile& file, std::size_t begin, std::size_t end)
      : path_(file.path()), text_(reinterpret_cast<const char*>(file.data()), end), at_(begin) {}

  Header parse() {
    std::optional<DType> dtype;
    std::optional<bool> fortran_order;
    std::optional<Dims> shape;
    expect('{');
    while (!accept('}')) {
      const std::size_t key_at = at_;
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !dtype)
        dtype = this->dtype();
      else if (key == "fortran_order" && !fortran_order)
        fortran_order = boolean();
      else if (key == "shape" && !shape)
        shape = this->shape();
      else
        fail(key_at, "the header has an unknown or duplicate key");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) fail(at_, "the header continues after its dictionary");
    if (!dtype || !fortran_order || !shape) fail(at_, "the header must have descr, fortran_order and shape");
    return {*dtype, *fortran_order, *shape};
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& reason) const {
    throw FileError(path_, static_cast<std::int64_t>(offset), reason);
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(at_, std::string("the header must have '") + c + "' here");
  }

  std::string_view string() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(at_, "the header must have a quoted string here");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail(at_, "a string in the header is not terminated");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  DType dtype() {
    skip_spaces();
    const std::size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '[') fail(begin, "structured arrays are not supported");
    const std::string_view name = string();
    if (name == "<f2") return DType::f16;
    if (name == "<f4") return DType::f32;
    if (name == "<f8") return DType::f64;
    if (name == "<i4") return DType::i32;
    if (name == "<i8") return DType::i64;
    if (name == "|b1") return DType::boolean;
    fail(begin, "the element type must be <f2, <f4, <f8, <i4, <i8 or |b1; found " + in_quotes(name));
  }

  bool boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail(at_, "fortran_order must be True or False");
  }

  Dims shape() {
    std::int64_t sizes[kMaxRank] = {};
    int rank = 0;
    expect('(');
    while (!accept(')')) {
      if (rank == kMaxRank) fail(at_, "arrays have at most " + std::to_string(kMaxRank) + " dimensions");
      sizes[rank++] = integer();
      if (!accept(',')) {
        if (rank == 1) expect(',');  // (2) is a number, (2,) a shape
        expect(')');
        break;
      }
    }
    return Dims(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(rank)));
  }

  std::int64_t integer() {
    skip_spaces();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        fail(begin, "a size of the shape does not fit into 64 bits");
    if (at_ == begin) fail(begin, "a size of the shape must be a non-negative integer");
    return value;
  }

  const std::string& path_;
  std::string_view text_;  // the file up to the end of the header, so that positions are byte offsets
  std::size_t at_;
};

Header read_header(const MappedFile& file, std::size_t& data_begin) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  if (file.size() < kMagic.size() + 2 || std::memcmp(bytes, kMagic.data(), kMagic.size()) != 0)
    throw FileError(file.path(), 0, "is not a .npy file (it does not begin with \\x93NUMPY and a version)");
  const int major = bytes[6], minor = bytes[7];
  if (major < 1 || major > 3 || minor != 0)
    throw FileError(
        file.path(), 6,
        ".npy versions 1.0 to 3.0 are supported; found " + std::to_string(major) + "." + std::to_string(minor));
  const std::size_t begin = major == 1 ? 10 : 12;
  if (file.size() < begin) throw FileError(file.path(), 8, "the file ends inside the length of its header");
  std::size_t length = bytes[8] | std::size_t{bytes[9]} << 8;
  if (major > 1) length |= std::size_t{bytes[10]} << 16 | std::size_t{bytes[11]} << 24;
  if (length > file.size() - begin)
    throw FileError(file.path(), 8,
                    "the header has " + std::to_string(length) + " bytes, the rest of the file " +
                        std::to_string(file.size() - begin));
  if (length > kLargestHeader)
    throw FileError(
        file.path(), 8,
        "the header must have at most " + std::to_string(kLargestHeader) + " bytes; found " + std::to_string(length));
  data_begin = begin + length;
  return HeaderParser(file, begin, data_begin).parse();
}

Dims fortran_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t step = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  const MappedFile file(path);
  std::size_t begin = 0;
  const Header header = read_header(file, begin);
  const auto where = static_cast<std::int64_t>(begin);
  const std::size_t available = file.size() - begin, size = dtype_size(header.dtype);
  std::int64_t count = 0;
  try {
    count = element_count(header.shape);
  } catch (const std::invalid_argument& error) {
    throw FileError(path, where, error.what());
  }
  // Divides instead of multiplying, to avoid overflow.
  if (static_cast<std::size_t>(count) > available / size || available != static_cast<std::size_t>(count) * size)
    throw FileError(path, where,
                    "the shape " + to_string(header.shape) + " of " + std::string(dtype_name(header.dtype)) +
                        " does not fit the " + std::to_string(available) + " bytes that follow the header");
  Tensor tensor(header.shape, header.dtype);
  const bool reorder = header.fortran_order && count > 0;
  copy_elements({file.data() + begin, header.dtype, header.shape,
                 reorder ? fortran_strides(header.shape) : contiguous_strides(header.shape)},
                tensor.raw());
  if (header.dtype == DType::boolean) {  // other values are undefined behaviour in C++
    auto* values = static_cast<unsigned char*>(tensor.raw());
    for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] != 0;
  }
  return tensor;
}

void save_npy(const std::string& path, const ConstView& array) {
  if (!array) throw std::invalid_argument("[save_npy] expected an array; found an empty view");
  constexpr std::string_view kDescr[] = {"<f4", "<f8", "<f4", "<f2", "<i8", "<i4", "|b1"};  // by DType
  std::string header = "{'descr': '" + std::string(kDescr[static_cast<std::size_t>(array.dtype)]) +
                       "', 'fortran_order': False, 'shape': (";
  for (int axis = 0; axis < array.rank(); ++axis) header += (axis ? ", " : "") + std::to_string(array.shape[axis]);
  header += array.rank() == 1 ? ",), }" : "), }";
  // Padded so that the elements start at a multiple of 64.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  AtomicFile file(path);
  file.write(kMagic);
  const unsigned char start[] = {1, 0, static_cast<unsigned char>(header.size()),
                                 static_cast<unsigned char>(header.size() >> 8)};
  file.write(start, sizeof start);
  file.write(header);
  write_elements(file, array, true);
  file.commit();
}

}  // namespace qkv
