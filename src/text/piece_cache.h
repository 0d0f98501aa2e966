// SPDX-License-Identifier: Apache-2.0
// Caches the ids of recent pieces. Bounded: a new piece replaces an older one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace qkv {

inline constexpr std::size_t kPieceSets = std::size_t{1} << 15;  // 2 MB: fits a core's caches

// Not thread-safe.
class PieceCache {
 public:
  static constexpr std::size_t kLongestPiece = 15, kMaxIds = 3;

  // Capacity: 2 * sets pieces, 64 bytes per set; sets is rounded up to a power of two. 0: no cache, must not be
  // queried.
  explicit PieceCache(std::size_t sets) : sets_(sets > 0 ? std::bit_ceil(sets) : 0) {}

  bool empty() const noexcept { return sets_.empty(); }

  struct Key {
    std::uint64_t low, high;  // the piece's bytes, zero padding, and its length in the last byte
    bool operator==(const Key&) const = default;
  };
  // `piece` has 1 to kLongestPiece bytes; `readable` bytes from its start can be read.
  static Key key_of(std::string_view piece, std::size_t readable) noexcept {
    static_assert(std::endian::native == std::endian::little);
    Key key{};
    if (readable >= sizeof key) {
      std::memcpy(&key, piece.data(), sizeof key);
      const std::size_t bits = 8 * piece.size();
      key.low &= bits < 64 ? (std::uint64_t{1} << bits) - 1 : ~std::uint64_t{0};
      key.high &= bits > 64 ? (std::uint64_t{1} << (bits - 64)) - 1 : 0;
    } else {
      std::memcpy(&key, piece.data(), piece.size());
    }
    key.high |= std::uint64_t{piece.size()} << 56;
    return key;
  }

  // At least one id; empty: not cached.
  std::span<const std::int32_t> find(const Key& key) const noexcept {
    const Set& set = sets_[place(key)];
    for (const Entry& entry : set)
      if (entry.key == key) return {entry.ids.data(), static_cast<std::size_t>(entry.count)};
    return {};
  }
  // 1 to kMaxIds ids.
  void put(const Key& key, std::span<const std::int32_t> ids) noexcept {
    Set& set = sets_[place(key)];
    set[1] = set[0];
    set[0].key = key;
    set[0].count = static_cast<std::int32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), set[0].ids.begin());
  }

 private:
  struct Entry {
    Key key{};  // length 0: free
    std::array<std::int32_t, kMaxIds> ids{};
    std::int32_t count = 0;
  };
  struct alignas(64) Set : std::array<Entry, 2> {};  // a cache line

  std::size_t place(const Key& key) const noexcept {
    std::uint64_t mixed = key.low * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ mixed >> 32 ^ key.high) * 0xD6E8FEB86659FD93u;
    return (mixed ^ mixed >> 32) & (sets_.size() - 1);
  }

  std::vector<Set> sets_;
};

}  // namespace qkv
