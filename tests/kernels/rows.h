// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of row kernels: awkward sizes, hostile values, and comparison of every set with the portable one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tables.h"

namespace qkv::test {

inline constexpr std::int64_t kRowSizes[] = {1, 2, 15, 16, 17, 31, 33, 48, 100, 768};

// Rounded to the storage type and back.
template <class S>
float stored(float x) {
  return widen(narrow<S>(x));
}

template <class S>
void put_into(Guarded<S>& memory, std::int64_t i, float x) {
  memory[i] = narrow<S>(x);
}

template <class S>
std::vector<float> widened(Guarded<S>& memory) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < memory.size(); ++i) all.push_back(widen(memory[i]));
  return all;
}

// Random numbers of the storage type; with `hostile`, every third one is from a list of hostile values.
template <class S>
void fill_stored(Numbers& numbers, Guarded<S>& memory, bool hostile = false, float deviation = 1) {
  static constexpr float kHostile[] = {kInf,   -kInf,   kNaN,        kDenormal,  -kDenormal, 0.0f,
                                       -0.0f,  kMax,    -kMax,       1e-40f,     -3e-39f,    88.8f,
                                       -87.4f, -104.0f, 1.00390625f, 12345678.0f};
  for (std::int64_t i = 0; i < memory.size(); ++i) {
    const float ordinary = deviation * numbers.normal();
    put_into(memory, i, hostile && numbers.below(3) == 0 ? kHostile[numbers.below(16)] : ordinary);
  }
}

// run(table) -> its output as f32. Every set must give the same bits (or NaN).
template <class Run>
void expect_same_in_all_sets(const Run& run) {
  std::vector<float> expected;
  for (const RowKernels* table : available_row_tables()) {
    SCOPED_TRACE(std::string(table->name));
    const std::vector<float> found = run(*table);
    if (expected.empty()) expected = found;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_TRUE(same(found[i], expected[i])) << "element " << i << ": " << found[i] << " and " << expected[i];
  }
}

// Runs a generic function with both storage types.
template <class Check>
void each_storage(const Check& check) {
  {
    SCOPED_TRACE("f32");
    check(float{});
  }
  SCOPED_TRACE("bf16");
  check(bf16{});
}

// The allowed error of a result of storage type S: `f32` relative (and absolute) for f32, plus half a unit in the last
// place for bf16.
template <class S>
double tolerance(double exact, double f32) {
  const double size = std::abs(exact);
  return std::is_same_v<S, float> ? f32 * (1 + size) : size * 0x1p-8 + f32 * (1 + size) + 0x1p-133;
}

inline void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace qkv::test
