// SPDX-License-Identifier: Apache-2.0
// Parses the header of a GGUF file. Every length and count is checked against the remaining bytes before use.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "formats/gguf.h"
#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::uint64_t kLongest = std::uint64_t{1} << 30;  // bytes of a string, elements of an array
constexpr std::uint64_t kLongestKey = 65535;
constexpr std::uint64_t kLongestName = 63;
constexpr std::uint64_t kSmallestKey = 8 + 4 + 1;             // name's length, type, value
constexpr std::uint64_t kSmallestTensor = 8 + 4 + 8 + 4 + 8;  // name's length, n_dims, one size, type, offset
constexpr std::string_view kAlignmentKey = "general.alignment";

std::uint64_t size_of(GgufType type) noexcept {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

class GgufParser {
 public:
  GgufParser(Gguf& to, std::span<const std::byte> file) : to_(to), file_(file) {}

  void run() {
    read_head();
    for (std::uint64_t i = 0; i < n_keys_; ++i) read_key();
    read_alignment();
    for (std::uint64_t i = 0; i < n_tensors_; ++i) read_tensor();
    place_tensors();
  }

 private:
  [[noreturn]] void fail(std::uint64_t at, const std::string& reason) const {
    throw FileError(to_.path_, static_cast<std::int64_t>(at), reason);
  }

  std::uint64_t left() const noexcept { return file_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t size, const char* what) {
    if (size > left()) fail(at_, std::string("the file ends inside ") + what);
    const auto bytes = file_.subspan(at_, size);
    at_ += size;
    return bytes;
  }

  template <class T>
  T take(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  // A u64 length and that many characters.
  std::string_view take_string(std::uint64_t longest, const char* what) {
    const std::uint64_t at = at_;
    const auto length = take<std::uint64_t>(what);
    if (length > longest)
      fail(at, std::string(what) + " may have " + std::to_string(longest) + " bytes; found " + std::to_string(length));
    if (length > left())
      fail(at, std::string(what) + " has " + std::to_string(length) + " bytes, the rest of the file " +
                   std::to_string(left()));
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Names appear in messages and in other programs' zero-terminated strings.
  std::string_view take_name(std::uint64_t longest, const char* what) {
    const std::uint64_t at = at_;
    const std::string_view name = take_string(longest, what);
    if (name.empty()) fail(at, std::string(what) + " is empty");
    if (name.find('\0') != std::string_view::npos) fail(at, std::string(what) + " contains a zero byte");
    return name;
  }

  void read_head() {
    if (file_.size() < 4 || std::memcmp(file_.data(), "GGUF", 4) != 0) fail(0, "is not a GGUF file");
    at_ = 4;
    to_.version_ = take<std::uint32_t>("the version");
    if (to_.version_ != 2 && to_.version_ != 3) {
      const bool swapped = to_.version_ == 0x02000000 || to_.version_ == 0x03000000;
      fail(4, swapped ? "big-endian files are not supported"
                      : "only GGUF versions 2 and 3 are supported; found " + std::to_string(to_.version_));
    }
    n_tensors_ = take<std::uint64_t>("the number of tensors");
    n_keys_ = take<std::uint64_t>("the number of keys");
    require_count(8, n_tensors_, kSmallestTensor, "tensors");
    require_count(16, n_keys_, kSmallestKey, "keys");
  }

  void require_count(std::uint64_t at, std::uint64_t count, std::uint64_t size, const char* what) const {
    if (count > left() / size)
      fail(at,
           std::to_string(count) + " " + what + " do not fit into the remaining " + std::to_string(left()) + " bytes");
  }

  GgufType take_type() {
    const std::uint64_t at = at_;
    const auto type = take<std::uint32_t>("the type of a value");
    if (type > static_cast<std::uint32_t>(GgufType::f64)) fail(at, "unknown value type " + std::to_string(type));
    return static_cast<GgufType>(type);
  }

  void read_key() {
    const std::uint64_t at = at_;
    GgufKey key;
    key.name = take_name(kLongestKey, "the name of a key");
    key.type = take_type();
    if (key.type == GgufType::array) {
      key.element = take_type();
      key.offset = static_cast<std::int64_t>(at_);
      if (key.element == GgufType::array)
        fail(at_ - 4, "key " + in_quotes(key.name) + ": arrays of arrays are not supported");
      read_array(key);
    } else {
      key.offset = static_cast<std::int64_t>(at_);
      key.bytes = take_value(key.type);
    }
    if (!to_.key_index_.emplace(key.name, to_.keys_.size()).second)
      fail(at, "key " + in_quotes(key.name) + " occurs twice");
    to_.keys_.push_back(key);
  }

  void read_array(GgufKey& key) {
    const std::uint64_t at = at_;
    key.count = take<std::uint64_t>("the length of an array");
    const std::uint64_t least = key.element == GgufType::string ? 8 : size_of(key.element);
    if (key.count > kLongest || key.count > left() / least)
      fail(at, "key " + in_quotes(key.name) + ": " + std::to_string(key.count) +
                   " elements do not fit into the remaining " + std::to_string(left()) + " bytes");
    const std::uint64_t begin = at_;
    if (key.element == GgufType::string || key.element == GgufType::boolean)
      for (std::uint64_t i = 0; i < key.count; ++i) take_value(key.element);
    else
      take(key.count * size_of(key.element), "an array");
    key.bytes = file_.subspan(begin, at_ - begin);
  }

  std::span<const std::byte> take_value(GgufType type) {
    const std::uint64_t at = at_;
    if (type == GgufType::string) {
      const std::string_view text = take_string(kLongest, "a string");
      return std::as_bytes(std::span(text.data(), text.size()));
    }
    const auto bytes = take(size_of(type), "a value");
    if (type == GgufType::boolean && bytes[0] > std::byte{1})
      fail(at, "a bool must be 0 or 1; found " + std::to_string(std::to_integer<int>(bytes[0])));
    return bytes;
  }

  void read_alignment() {
    const GgufKey* key = to_.find_key(kAlignmentKey);
    if (!key) return;
    if (key->type != GgufType::u32) to_.fail_key(kAlignmentKey, "must be a u32");
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, key->bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment))
      to_.fail_key(kAlignmentKey, "must be a power of two; found " + std::to_string(alignment));
    to_.alignment_ = alignment;
  }

  void read_tensor() {
    const std::uint64_t at = at_;
    GgufTensor tensor;
    tensor.offset = static_cast<std::int64_t>(at);
    tensor.name = take_name(kLongestName, "the name of a tensor");
    const std::string where = "tensor " + in_quotes(tensor.name) + ": ";
    const auto n_dims = take<std::uint32_t>("the dimensions of a tensor");
    if (n_dims < 1 || n_dims > 4) fail(at, where + "expected 1 to 4 dimensions; found " + std::to_string(n_dims));
    for (std::uint32_t i = 0; i < n_dims; ++i) {
      const auto size = take<std::uint64_t>("the sizes of a tensor");
      if (size < 1 || size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(at, where + "a size must be at least 1 and fit into 63 bits; found " + std::to_string(size));
      tensor.dims.push_back(static_cast<std::int64_t>(size));
    }
    const auto id = take<std::uint32_t>("the type of a tensor");
    tensor.type = gguf_tensor_type(id);
    if (!tensor.type) fail(at, where + "unknown element type " + std::to_string(id));
    offsets_.push_back(take<std::uint64_t>("the offset of a tensor"));
    sizes_.push_back(size_in_bytes(tensor, at, where));
    if (!to_.tensor_index_.emplace(tensor.name, to_.tensors_.size()).second) fail(at, where + "occurs twice");
    to_.tensors_.push_back(std::move(tensor));
  }

  std::uint64_t size_in_bytes(const GgufTensor& tensor, std::uint64_t at, const std::string& where) const {
    const GgufTensorType& type = *tensor.type;
    if (tensor.row() % type.elements != 0)
      fail(at, where + "rows of " + std::string(type.name) + " must be multiples of " + std::to_string(type.elements) +
                   " elements; found " + std::to_string(tensor.row()));
    std::int64_t elements = 1, bytes = 0;
    bool wraps = false;
    for (const std::int64_t size : tensor.dims) wraps |= __builtin_mul_overflow(elements, size, &elements);
    wraps = wraps || __builtin_mul_overflow(elements / type.elements, type.bytes, &bytes);
    if (wraps) fail(at, where + "the product of its sizes overflows");
    return static_cast<std::uint64_t>(bytes);
  }

  // Tensors follow the order of the directory, each at the next multiple of the alignment.
  void place_tensors() {
    if (to_.tensors_.empty()) return;
    const std::uint64_t mask = to_.alignment_ - 1, data = (at_ + mask) & ~mask;
    if (data > file_.size()) fail(at_, "the file ends before its tensors");
    const std::uint64_t room = file_.size() - data;
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < to_.tensors_.size(); ++i) {
      GgufTensor& tensor = to_.tensors_[i];
      const auto at = static_cast<std::uint64_t>(tensor.offset);
      const std::string where = "tensor " + in_quotes(tensor.name) + ": ";
      if (offsets_[i] != next)
        fail(at, where + "must be at offset " + std::to_string(next) + "; found " + std::to_string(offsets_[i]));
      if (next > room || sizes_[i] > room - next)
        fail(at, where + "its " + std::to_string(sizes_[i]) + " bytes extend past the end of the file");
      tensor.bytes = file_.subspan(data + next, sizes_[i]);
      next = (next + sizes_[i] + mask) & ~mask;  // both are inside the file: no overflow
    }
  }

  Gguf& to_;
  std::span<const std::byte> file_;
  std::uint64_t at_ = 0;
  std::uint64_t n_tensors_ = 0, n_keys_ = 0;
  std::vector<std::uint64_t> offsets_, sizes_;  // of the tensors
};

Gguf::Gguf(std::string path, std::span<const std::byte> file) : path_(std::move(path)) {
  GgufParser(*this, file).run();
}

}  // namespace qkv
