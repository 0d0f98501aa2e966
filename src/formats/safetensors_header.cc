// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr SafetensorsType kTypes[] = {
    {"F32", 4, DType::f32},   {"F64", 8, DType::f64},       {"BF16", 2, DType::bf16},     {"F16", 2, DType::f16},
    {"I64", 8, DType::i64},   {"I32", 4, DType::i32},       {"BOOL", 1, DType::boolean},  {"U8", 1, std::nullopt},
    {"I8", 1, std::nullopt},  {"I16", 2, std::nullopt},     {"U16", 2, std::nullopt},     {"U32", 4, std::nullopt},
    {"U64", 8, std::nullopt}, {"F8_E5M2", 1, std::nullopt}, {"F8_E4M3", 1, std::nullopt},
};

// Parses the JSON as a stream, so that duplicate names are detected and nothing deep or large is allocated.
class HeaderSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderSax(const std::string& path, std::int64_t offset, SafetensorsHeader& header)
      : path_(path), offset_(offset), header_(header) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number that is not a 64-bit integer"); }
  bool binary(binary_t&) override { return value("binary data"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (place_ != Place::shape && place_ != Place::offsets) return value("a number");
    if (place_ == Place::shape && number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail("has a size above 2^63");
    numbers_.push_back(number);
    if (place_ == Place::offsets && numbers_.size() > 2) fail("must have two data_offsets; found more");
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(key_, text);
    } else if (place_ == Place::entry && key_ == "dtype") {
      info_.type = safetensors_type(text);
      if (!info_.type) fail("has the unknown type " + in_quotes(text));
    } else {
      return value("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::outside:
        place_ = Place::top;
        return true;
      case Place::top:
        place_ = key_ == "__metadata__" ? Place::metadata : Place::entry;
        info_ = {};
        info_.name = key_;
        seen_.clear();
        return true;
      default:
        return value("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::entry) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!seen_.contains(field)) fail(std::string("has no ") + field);
      header_.tensors.push_back(std::move(info_));
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool key(string_t& text) override {
    key_ = text;
    if (place_ == Place::top) {
      if (!names_.insert(text).second) throw FileError(path_, offset_, "the name " + in_quotes(text) + " occurs twice");
      return true;
    }
    if (!seen_.insert(text).second) fail("has " + in_quotes(text) + " twice");
    if (place_ == Place::entry && text != "dtype" && text != "shape" && text != "data_offsets")
      fail("has the unknown field " + in_quotes(text));
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::entry || key_ == "dtype") return value("a list");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (place_ == Place::shape) {
      info_.shape.assign(numbers_.begin(), numbers_.end());
    } else {
      if (numbers_.size() != 2) fail("must have two data_offsets; found " + std::to_string(numbers_.size()));
      info_.begin = numbers_[0];
      info_.end = numbers_[1];
    }
    place_ = Place::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw FileError(path_, offset_ + static_cast<std::int64_t>(position) - 1, "the header is not valid JSON");
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };

  // A value of a type that is not allowed here.
  bool value(const std::string& what) {
    switch (place_) {
      case Place::outside:
        throw FileError(path_, offset_, "the header must be a JSON object; found " + what);
      case Place::top:
        throw FileError(path_, offset_, in_quotes(key_) + " must be an object; found " + what);
      case Place::metadata:
        throw FileError(path_, offset_, "__metadata__ must contain strings; " + in_quotes(key_) + " is " + what);
      default:
        fail(key_ + " cannot be or contain " + what);
    }
  }
  [[noreturn]] void fail(const std::string& reason) const {
    throw FileError(path_, offset_, "tensor " + in_quotes(info_.name) + ": " + reason);
  }

  const std::string& path_;
  const std::int64_t offset_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  std::string key_;
  std::set<std::string> names_;  // of the top level
  std::set<std::string> seen_;   // of the current nested object
  SafetensorsInfo info_;
  std::vector<std::uint64_t> numbers_;
};

// The bytes a tensor needs; false if any intermediate product exceeds 64 bits.
bool bytes_needed(const SafetensorsInfo& info, std::uint64_t& bytes) noexcept {
  bytes = 1;
  for (const std::int64_t size : info.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return false;
  return !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(info.type->size), &bytes);
}

// Tensors must cover the data: the first starts at 0, each at the end of the previous one, and the last ends at the
// end.
void check_ranges(const std::string& path, std::int64_t offset, std::vector<SafetensorsInfo>& tensors,
                  std::uint64_t data_size) {
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsInfo& a, const SafetensorsInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t reached = 0;
  for (const SafetensorsInfo& info : tensors) {
    const auto fail = [&](const std::string& reason) {
      throw FileError(path, offset, "tensor " + in_quotes(info.name) + ": " + reason);
    };
    const std::string range = fmt::format("[{}, {})", info.begin, info.end);
    std::uint64_t needed = 0;
    if (info.begin > info.end || info.end > data_size)
      fail("its bytes " + range + " must lie inside the file's " + std::to_string(data_size) + " bytes of data");
    if (!bytes_needed(info, needed)) fail("its shape needs more bytes than 64 bits can count");
    if (needed != info.end - info.begin)
      fail("shape and type need " + std::to_string(needed) + " bytes; found " + std::to_string(info.end - info.begin));
    if (info.begin != reached)
      fail("its bytes " + range + " must begin at the end of the previous tensor, " + std::to_string(reached));
    reached = info.end;
  }
  if (reached != data_size)
    throw FileError(
        path, offset,
        "the tensors end at byte " + std::to_string(reached) + " of the data, which has " + std::to_string(data_size));
}

}  // namespace

const SafetensorsType* safetensors_type(std::string_view name) noexcept {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

const SafetensorsType& safetensors_type(DType dtype) noexcept { return kTypes[static_cast<std::size_t>(dtype)]; }

SafetensorsHeader parse_safetensors_header(const std::string& path, std::int64_t offset, std::string_view text,
                                           std::uint64_t data_size) {
  if (text.empty() || text.front() != '{') throw FileError(path, offset, "the header must begin with '{'");
  // The JSON library treats NUL as the end of input.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw FileError(path, offset + static_cast<std::int64_t>(nul), "the header contains a NUL byte");
  SafetensorsHeader header;
  HeaderSax sax(path, offset, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
  check_ranges(path, offset, header.tensors, data_size);
  return header;
}

}  // namespace qkv
