// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <tuple>

#include "formats/elements.h"
#include "formats/in_quotes.h"
#include "formats/safetensors_header.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("[safetensors] expected names and metadata in UTF-8; found " + in_quotes(text));
  }
}

// The JSON header for contiguous tensors, padded to a multiple of 8 bytes.
std::string header_of(const std::vector<NamedView>& tensors, const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names;
  std::string header = "{";
  if (!metadata.empty()) {
    fmt::format_to(std::back_inserter(header), "\"{}\":{{", kMetadata);
    for (const auto& [key, text] : metadata) {
      if (header.back() != '{') header += ',';
      fmt::format_to(std::back_inserter(header), "{}:{}", json_string(key), json_string(text));
    }
    header += '}';
  }
  std::int64_t at = 0;
  for (const NamedView& tensor : tensors) {
    if (!tensor.view && !tensor.make)
      throw std::invalid_argument("[safetensors] expected elements; found none for " + in_quotes(tensor.name));
    if (tensor.name == kMetadata || !names.insert(tensor.name).second)
      throw std::invalid_argument("[safetensors] expected unique names other than __metadata__; found " +
                                  in_quotes(tensor.name));
    const std::int64_t begin = at;
    at += element_count(tensor.view.shape) * static_cast<std::int64_t>(dtype_size(tensor.view.dtype));
    if (header.size() > 1) header += ',';
    fmt::format_to(std::back_inserter(header), R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   json_string(tensor.name), safetensors_type(tensor.view.dtype).name,
                   fmt::join(tensor.view.shape.begin(), tensor.view.shape.end(), ","), begin, at);
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  std::uint64_t length = 0;
  if (file_.size() < sizeof length) throw FileError(path, 0, "the file ends inside the length of its header");
  std::memcpy(&length, file_.data(), sizeof length);
  if (length > kLargestHeader)
    throw FileError(
        path, 0,
        "the header must have at most " + std::to_string(kLargestHeader) + " bytes; found " + std::to_string(length));
  const std::size_t rest = file_.size() - sizeof length;
  if (length > rest)
    throw FileError(
        path, 0, "the header has " + std::to_string(length) + " bytes, the rest of the file " + std::to_string(rest));
  const std::string_view text(reinterpret_cast<const char*>(file_.data()) + sizeof length, length);
  SafetensorsHeader header = parse_safetensors_header(path, sizeof length, text, rest - length);
  metadata_ = std::move(header.metadata);
  const std::byte* data = file_.data() + sizeof length + length;
  entries_.reserve(header.tensors.size());
  for (SafetensorsInfo& info : header.tensors) {
    index_.emplace(info.name, entries_.size());
    entries_.push_back({std::move(info.name), std::string(info.type->name), std::move(info.shape), data + info.begin,
                        static_cast<std::size_t>(info.end - info.begin)});
  }
}

const SafetensorsFile::Entry* SafetensorsFile::entry(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

ConstView SafetensorsFile::find(std::string_view name) const {
  const Entry* found = entry(name);
  if (!found) return {};
  const SafetensorsType* type = safetensors_type(found->dtype);
  if (!type->native)
    throw FileError(path(), "tensor " + in_quotes(name) + ": type " + found->dtype + " is not supported");
  if (found->shape.size() > kMaxRank)
    throw FileError(path(), "tensor " + in_quotes(name) + ": at most " + std::to_string(kMaxRank) +
                                " dimensions are supported; found " + std::to_string(found->shape.size()));
  const Dims shape{std::span<const std::int64_t>(found->shape)};
  return {found->data, *type->native, shape, contiguous_strides(shape)};
}

void SafetensorsFile::read(std::string_view name, View to) const {
  const ConstView from = find(name);
  const std::string where = "tensor " + in_quotes(name) + ": ";
  if (!from) throw FileError(path(), where + "is missing");
  if (from.dtype != to.dtype || !(from.shape == to.shape))
    throw FileError(path(), where + "expected " + std::string(dtype_name(to.dtype)) + " " + to_string(to.shape) +
                                "; found " + std::string(dtype_name(from.dtype)) + " " + to_string(from.shape));
  const std::size_t bytes = entry(name)->bytes;
  if (bytes) std::memcpy(to.data, from.data, bytes);
  if (to.dtype == DType::boolean) {  // other values are undefined behaviour in C++
    auto* values = static_cast<unsigned char*>(to.data);
    for (std::size_t i = 0; i < bytes; ++i) values[i] = values[i] != 0;
  }
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const ConstView from = find(name);
  if (!from) throw FileError(path(), "tensor " + in_quotes(name) + ": is missing");
  Tensor tensor(from.shape, from.dtype);
  read(name, tensor.view());
  return tensor;
}

void write_safetensors(const std::string& path, std::vector<NamedView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const void* data, std::size_t size)>& watcher) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedView& a, const NamedView& b) {
    return std::make_tuple(dtype_size(b.view.dtype), std::string_view(a.name)) <
           std::make_tuple(dtype_size(a.view.dtype), std::string_view(b.name));
  });
  const std::string header = header_of(tensors, metadata);
  const std::uint64_t length = header.size();
  if (length > kLargestHeader)
    throw std::invalid_argument("[safetensors] expected a header of at most 100 MB; found more");
  AtomicFile file(path);
  if (watcher) file.watch(watcher);
  file.write(&length, sizeof length);
  file.write(header);
  for (const NamedView& tensor : tensors) {
    if (tensor.make)
      write_elements(file, tensor.make());
    else
      write_elements(file, tensor.view);
  }
  file.commit();
}

}  // namespace qkv
