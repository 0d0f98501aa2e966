// SPDX-License-Identifier: Apache-2.0
#include "page/packed.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

namespace qkv {
namespace {

char digit(std::uint32_t value) noexcept {
  const char c = static_cast<char>('(' + value);
  return c == '<' ? '}' : c;
}

struct Stream : z_stream {
  explicit Stream(int strategy) : z_stream{} {
    if (deflateInit2(this, 6, Z_DEFLATED, 15, 9, strategy) != Z_OK) throw std::bad_alloc();
  }
  ~Stream() { deflateEnd(this); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

}  // namespace

std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes, Deflate how) {
  Stream stream(how == Deflate::repeats ? Z_DEFAULT_STRATEGY : Z_HUFFMAN_ONLY);
  std::vector<std::uint8_t> out;
  std::vector<std::uint8_t> part(std::size_t{1} << 16);
  constexpr std::size_t kMax = std::numeric_limits<uInt>::max() / 2;  // zlib's limit per call
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0 && !bytes.empty()) {
      const std::size_t count = std::min(bytes.size(), kMax);
      stream.next_in = const_cast<Bytef*>(bytes.data());
      stream.avail_in = static_cast<uInt>(count);
      bytes = bytes.subspan(count);
    }
    stream.next_out = part.data();
    stream.avail_out = static_cast<uInt>(part.size());
    state = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.insert(out.end(), part.data(), stream.next_out);
  }
  return out;
}

std::string base85(std::span<const std::uint8_t> bytes) {
  std::string text;
  text.reserve(bytes.size() / 4 * 5 + 5);
  for (std::size_t at = 0; at < bytes.size(); at += 4) {
    const std::size_t count = std::min<std::size_t>(4, bytes.size() - at);
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < count; ++i) number |= static_cast<std::uint32_t>(bytes[at + i]) << (8 * i);
    char digits[5];
    for (std::size_t i = 5; i-- > 0; number /= 85) digits[i] = digit(number % 85);
    text.append(digits + (4 - count), count + 1);
  }
  return text;
}

}  // namespace qkv
