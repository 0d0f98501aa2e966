// SPDX-License-Identifier: Apache-2.0
#include "qkv/model_state.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace qkv {
namespace {

constexpr std::uint64_t kMagic = 0x3145544154534b51;  // "QKSTATE1"
constexpr std::size_t kHeader = 64;

struct Header {
  std::uint64_t magic, layers, tokens, bytes_per_token, dtype, reserved[3];
};
static_assert(sizeof(Header) == kHeader);

[[noreturn]] void refuse(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[model state] expected " + expected + "; found " + found);
}

// Layer sizes that distinguish states; q8_0 has the query dtype of f32 but a different size in bytes.
Header header_of(const ModelState& state) {
  return {kMagic,
          state.layers.size(),
          static_cast<std::uint64_t>(state.size()),
          state.bytes_per_token(),
          state.layers.empty() ? 0 : static_cast<std::uint64_t>(state.layers.front().query_dtype()),
          {}};
}

}  // namespace

void ModelState::truncate(std::int64_t size) {
  if (size < 0 || size > this->size()) refuse("a size from 0 to " + std::to_string(this->size()), std::to_string(size));
  for (KvCache& layer : layers) layer.truncate(size);
}

ModelState ModelState::prefix(std::int64_t size) const {
  if (size < 0 || size > this->size()) refuse("a size from 0 to " + std::to_string(this->size()), std::to_string(size));
  ModelState copy;
  copy.layers.reserve(layers.size());
  for (const KvCache& layer : layers) copy.layers.push_back(layer.prefix(size));
  return copy;
}

std::size_t ModelState::bytes_per_token() const noexcept {
  std::size_t bytes = 0;
  for (const KvCache& layer : layers) bytes += layer.bytes_per_token();
  return bytes;
}

std::size_t ModelState::memory_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const KvCache& layer : layers) bytes += layer.memory_bytes();
  return bytes;
}

std::vector<std::byte> ModelState::to_bytes() const {
  const Header header = header_of(*this);
  std::vector<std::byte> bytes(kHeader + static_cast<std::size_t>(size()) * bytes_per_token());
  std::memcpy(bytes.data(), &header, kHeader);
  std::byte* at = bytes.data() + kHeader;
  for (const KvCache& layer : layers) {
    layer.save(at);
    at += static_cast<std::size_t>(layer.size()) * layer.bytes_per_token();
  }
  return bytes;
}

void ModelState::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeader) refuse("a header of 64 bytes", std::to_string(bytes.size()));
  Header header;
  std::memcpy(&header, bytes.data(), kHeader);
  const Header own = header_of(*this);
  if (header.magic != kMagic) refuse("the magic number of a model state", "other bytes");
  if (header.layers != own.layers || header.bytes_per_token != own.bytes_per_token || header.dtype != own.dtype)
    refuse(std::to_string(own.layers) + " layers with " + std::to_string(own.bytes_per_token) +
               " bytes per token, of the same cache type",
           std::to_string(header.layers) + " with " + std::to_string(header.bytes_per_token));
  const std::uint64_t room = layers.empty() ? 0 : static_cast<std::uint64_t>(layers.front().capacity());
  if (header.tokens > room) refuse("at most " + std::to_string(room) + " tokens", std::to_string(header.tokens));
  if (bytes.size() != kHeader + header.tokens * header.bytes_per_token)
    refuse(std::to_string(kHeader + header.tokens * header.bytes_per_token) + " bytes", std::to_string(bytes.size()));
  const std::byte* at = bytes.data() + kHeader;
  for (KvCache& layer : layers) {
    layer.restore(at, static_cast<std::int64_t>(header.tokens));
    at += header.tokens * layer.bytes_per_token();
  }
}

}  // namespace qkv
