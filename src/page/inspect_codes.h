// SPDX-License-Identifier: Apache-2.0
// Encodes numbers of a forward pass in one or two bytes each, with a known error bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

struct InspectPrecision {
  std::int32_t weight_peak;  // weight = (code / peak)^power, so small weights have small steps
  std::int32_t weight_power;
  std::int32_t score_bits;   // 8 or 16; 0: scores are computed from the weights
  std::int32_t vector_bits;  // 3 ... 8 or 16
};

constexpr std::int32_t kLeastPeak = 63;  // the coarsest weights are (code / 63)^2

// From finest to coarsest.
std::span<const InspectPrecision> inspect_ladder() noexcept;

// Codes take one byte, or two if the largest code is above 255: all low bytes, then all high bytes.
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
// the step between adjacent codes. Throws std::invalid_argument for weights outside 0 ... 1 (up to rounding).
void append_weights(std::vector<std::uint8_t>& bytes, const float* pattern, std::size_t ctx,
                    const InspectPrecision& precision);

// One head's scores, each row scaled to its range: ctx rows of (f32 least, f32 step), then the codes [ctx, ctx]:
// score = least + step * code, with an error of at most step / 2 and f32 rounding. Throws on NaN and infinity.
void append_scores(std::vector<std::uint8_t>& bytes, const float* scores, std::size_t ctx, std::int32_t bits);

// ctx rows of `width` numbers, `stride` apart: one scale per row (bf16, at least the row's largest magnitude), then the
// codes: number = scale * (code - peak) / peak with peak = 2^(bits - 1) - 1 and an error of at most scale / peak / 2.
// Throws on NaN and infinity.
void append_vectors(std::vector<std::uint8_t>& bytes, const float* rows, std::size_t ctx, std::size_t width,
                    std::size_t stride, std::int32_t bits);

// Log-sum-exp of each row, f32, to recover scores: score = ln(weight) + log-sum-exp.
void append_log_sums(std::vector<std::uint8_t>& bytes, const float* scaled, const float* pattern, std::size_t ctx);

}  // namespace qkv
