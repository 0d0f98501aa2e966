// SPDX-License-Identifier: Apache-2.0
// Every kernel table that this processor supports, memory that detects out-of-bounds writes, and numbers to fill it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/float_types.h"
#include "core/random.h"
#include "kernels/kernels.h"
#include "kernels/row_kernels.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define QKV_TEST_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define QKV_TEST_POISON 1
#endif
#endif

namespace qkv::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kMax = std::numeric_limits<float>::max();
inline constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
inline constexpr float kUntouched = -12345.0f;  // the initial value of outputs, where nothing should be written

// The tables of this processor, detected directly instead of through the dispatch.
std::vector<const KernelTable*> available_tables();
std::vector<const RowKernels*> available_row_tables();

// Lanes of the widest vector of a table's tiles.
inline int widest_lanes(const KernelTable& table) {
  int lanes = 0;
  for (int i = 0; i < table.tile_count; ++i) lanes = std::max(lanes, table.tiles[i].lanes);
  return lanes;
}

// Calls check(table, tile) for every tile of every table, with their names in the messages.
template <class Check>
void each_tile(const Check& check) {
  for (const KernelTable* table : available_tables())
    for (int i = 0; i < table->tile_count; ++i) {
      SCOPED_TRACE(std::string(table->name) + ", " + std::to_string(table->tiles[i].width) + " queries");
      check(*table, table->tiles[i]);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

// The ranges of vectors [first, last) of a tile.
struct Vectors {
  int first, last;
};
inline std::vector<Vectors> vector_ranges(const TileKernels& tile) {
  std::vector<Vectors> all;
  for (int first = 0; first < tile.width / tile.lanes; ++first)
    for (int last = first + 1; last <= tile.width / tile.lanes; ++last) all.push_back({first, last});
  return all;
}

// The same with the number of columns that contain queries: any number in narrow tiles, which have separate products
// for few columns.
struct Part {
  int rows, first, last;
};
inline std::vector<Part> parts(const TileKernels& tile) {
  std::vector<Part> all;
  for (const Vectors v : vector_ranges(tile)) all.push_back({tile.width, v.first, v.last});
  for (int rows = tile.width <= 8 ? 1 : tile.width - 1; rows < tile.width; ++rows)
    all.push_back({rows, 0, tile.width / tile.lanes});
  return all;
}

// `count` elements that start `shift` elements after a 64-byte boundary, between guards of all-one bits: as inputs
// these are NaN, so that out-of-bounds reads show in the result (and AddressSanitizer aborts).
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t count, int shift = 0, T value = T{}) : count_(static_cast<std::size_t>(count)) {
    if (count < 0 || count > (std::int64_t{1} << 32)) throw std::length_error("Guarded");  // silences a GCC warning
    memory_.assign(count_ * sizeof(T) + 2 * kGuard + 256, 0xff);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = static_cast<std::size_t>((64 - address % 64) % 64) + kGuard + static_cast<std::size_t>(shift) * sizeof(T);
    for (std::size_t i = 0; i < count_; ++i) data()[i] = value;
    poison(true);
  }
  ~Guarded() { poison(false); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_.data() + begin_); }
  T& operator[](std::int64_t i) { return data()[i]; }
  std::int64_t size() const { return static_cast<std::int64_t>(count_); }
  std::vector<T> copy() { return std::vector<T>(data(), data() + count_); }

  // Whether the guards are unchanged.
  bool intact() {
    poison(false);
    bool same = true;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if (i < begin_ || i >= end()) same = same && memory_[i] == 0xff;
    poison(true);
    return same;
  }

 private:
  static constexpr std::size_t kGuard = 192;
  std::size_t end() const { return begin_ + count_ * sizeof(T); }
  void poison([[maybe_unused]] bool on) {
#ifdef QKV_TEST_POISON
    if (on) {
      __asan_poison_memory_region(memory_.data(), begin_ / 8 * 8);
      __asan_poison_memory_region(memory_.data() + end(), memory_.size() - end());
    } else {
      __asan_unpoison_memory_region(memory_.data(), memory_.size());
    }
#endif
  }

  std::size_t count_, begin_ = 0;
  std::vector<unsigned char> memory_;
};

// A sequence of random numbers.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed) {}
  float normal() { return static_cast<float>(random_.normal(next_++)); }
  float uniform(double least, double most) {
    return static_cast<float>(least + (most - least) * random_.uniform(next_++));
  }
  int below(int n) { return static_cast<int>(random_.below(next_++, static_cast<std::uint64_t>(n))); }
  template <class Memory>
  void fill(Memory& memory, float deviation = 1) {
    for (std::int64_t i = 0; i < memory.size(); ++i) memory[i] = deviation * normal();
  }
  void fill_bf16(Guarded<std::uint16_t>& memory, float deviation = 1) {
    for (std::int64_t i = 0; i < memory.size(); ++i) memory[i] = narrow<bf16>(deviation * normal()).bits;
  }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

inline float from_bf16(std::uint16_t bits) { return widen(bf16{bits}); }

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }
// Equal, or both NaN.
inline bool same(float a, float b) { return same_bits(a, b) || (std::isnan(a) && std::isnan(b)); }

// The multiply-add of a table: fused in all sets except the portable one.
inline float multiply_add(const KernelTable& table, float a, float b, float sum) {
  if (table.name != "portable") return std::fma(a, b, sum);
  const float product = a * b;
  return product + sum;
}

}  // namespace qkv::test
