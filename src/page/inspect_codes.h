// SPDX-License-Identifier: Apache-2.0
// Numbers of a forward pass in one or two bytes each, with an error that a reader can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

struct InspectPrecision {
  std::int32_t weight_peak;  // a weight is (code / peak)^power, so small weights have small steps
  std::int32_t weight_power;
  std::int32_t score_bits;   // 8 or 16; 0: a score is worked back from its weight
  std::int32_t vector_bits;  // 3 ... 8 or 16
};

constexpr std::int32_t kLeastPeak = 63;  // no page has coarser weights than (code / 63)^2

// From the finest to the coarsest.
std::span<const InspectPrecision> inspect_ladder() noexcept;

// Codes take one byte, or two where the greatest code is above 255: then all low bytes come first, all high bytes next.
class CodeBytes {
 public:
  CodeBytes(std::size_t count, std::int64_t greatest) : low_(count), high_(greatest > 255 ? count : 0) {}
  void set(std::size_t at, std::int64_t code) {
    low_[at] = static_cast<std::uint8_t>(code & 255);
    if (!high_.empty()) high_[at] = static_cast<std::uint8_t>(code >> 8);
  }
  void append_to(std::vector<std::uint8_t>& bytes) const {
    bytes.insert(bytes.end(), low_.begin(), low_.end());
    bytes.insert(bytes.end(), high_.begin(), high_.end());
  }

 private:
  std::vector<std::uint8_t> low_, high_;
};

// The triangle j <= i of one head's weights, row after row. pattern: [ctx, ctx]. The error of a weight is at most half
// the step between neighbouring codes. Throws std::invalid_argument on what is not within 0 ... 1 (to rounding).
void append_weights(std::vector<std::uint8_t>& bytes, const float* pattern, std::size_t ctx,
                    const InspectPrecision& precision);

// One head's scores, each row between its least and its greatest: ctx rows of (f32 least, f32 step), then the codes of
// [ctx, ctx]: score = least + step * code, off by at most step / 2 and f32's rounding. Throws on NaN and infinity.
void append_scores(std::vector<std::uint8_t>& bytes, const float* scores, std::size_t ctx, std::int32_t bits);

// ctx rows of `width` numbers, `stride` apart: a scale a row (bf16, not below the row's greatest size), then the codes:
// number = scale * (code - peak) / peak with peak = 2^(bits - 1) - 1, off by at most scale / peak / 2. Throws on NaN
// and infinity.
void append_vectors(std::vector<std::uint8_t>& bytes, const float* rows, std::size_t ctx, std::size_t width,
                    std::size_t stride, std::int32_t bits);

// ln of the sum of exp(score) of each row, f32: what a score is worked back with, score = ln(weight) + this.
void append_log_sums(std::vector<std::uint8_t>& bytes, const float* scaled, const float* pattern, std::size_t ctx);

}  // namespace qkv
