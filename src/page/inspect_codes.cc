// SPDX-License-Identifier: Apache-2.0
#include "page/inspect_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

namespace qkv {
namespace {

constexpr InspectPrecision kLadder[] = {
    {65535, 3, 16, 16}, {65535, 3, 16, 8}, {255, 3, 8, 8}, {255, 3, 0, 8},
    {255, 2, 0, 6},     {127, 2, 0, 5},    {127, 2, 0, 4},
};

[[noreturn]] void refuse(const char* what, float found) {
  throw std::invalid_argument("[inspect_page] expected " + std::string(what) + "; found " + std::to_string(found));
}

void append_u32(std::vector<std::uint8_t>& bytes, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(value >> shift));
}

void append_f32(std::vector<std::uint8_t>& bytes, float value) {
  append_u32(bytes, std::bit_cast<std::uint32_t>(value));
}

// The smallest bf16 not below a positive number; its bits are the upper half of an f32.
std::uint32_t bf16_above(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits + 0xffffu) >> 16;
}

}  // namespace

std::span<const InspectPrecision> inspect_ladder() noexcept { return kLadder; }

void append_weights(std::vector<std::uint8_t>& bytes, const float* pattern, std::size_t ctx,
                    const InspectPrecision& precision) {
  CodeBytes codes(ctx * (ctx + 1) / 2, precision.weight_peak);
  std::size_t at = 0;
  for (std::size_t i = 0; i < ctx; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const float weight = pattern[i * ctx + j];  // [ctx, ctx]
      if (!(weight >= 0.0f && weight <= 1.001f)) refuse("attention weights from 0 to 1", weight);
      const double root = precision.weight_power == 3 ? std::cbrt(weight) : std::sqrt(static_cast<double>(weight));
      codes.set(at++, std::min<std::int64_t>(std::llround(precision.weight_peak * root), precision.weight_peak));
    }
  }
  codes.append_to(bytes);
}

void append_scores(std::vector<std::uint8_t>& bytes, const float* scores, std::size_t ctx, std::int32_t bits) {
  const std::int64_t greatest = (std::int64_t{1} << bits) - 1;
  CodeBytes codes(ctx * ctx, greatest);
  for (std::size_t i = 0; i < ctx; ++i) {
    const float* row = scores + i * ctx;  // [ctx]
    for (std::size_t j = 0; j < ctx; ++j)
      if (!std::isfinite(row[j])) refuse("finite scores", row[j]);
    const auto [least, most] = std::minmax_element(row, row + ctx);
    const float step = static_cast<float>((static_cast<double>(*most) - *least) / static_cast<double>(greatest));
    append_f32(bytes, *least);
    append_f32(bytes, step);
    for (std::size_t j = 0; j < ctx; ++j) {
      const double code = step > 0 ? (static_cast<double>(row[j]) - *least) / step : 0;
      codes.set(i * ctx + j, std::clamp<std::int64_t>(std::llround(code), 0, greatest));
    }
  }
  codes.append_to(bytes);
}

void append_vectors(std::vector<std::uint8_t>& bytes, const float* rows, std::size_t ctx, std::size_t width,
                    std::size_t stride, std::int32_t bits) {
  const std::int64_t peak = (std::int64_t{1} << (bits - 1)) - 1;
  CodeBytes codes(ctx * width, 2 * peak);
  for (std::size_t t = 0; t < ctx; ++t) {
    const float* row = rows + t * stride;  // [width]
    float size = 0;
    for (std::size_t c = 0; c < width; ++c) {
      if (!(std::fabs(row[c]) < 1e38f)) refuse("finite numbers below 1e38 in q, k, v and z", row[c]);
      size = std::max(size, std::fabs(row[c]));
    }
    const std::uint32_t scale_bits = bf16_above(size);
    const double scale = std::bit_cast<float>(scale_bits << 16);
    bytes.push_back(static_cast<std::uint8_t>(scale_bits & 255));
    bytes.push_back(static_cast<std::uint8_t>(scale_bits >> 8));
    for (std::size_t c = 0; c < width; ++c) {
      const double unit = scale > 0 ? row[c] / scale : 0;
      codes.set(t * width + c, std::llround(unit * static_cast<double>(peak)) + peak);
    }
  }
  codes.append_to(bytes);
}

void append_log_sums(std::vector<std::uint8_t>& bytes, const float* scaled, const float* pattern, std::size_t ctx) {
  for (std::size_t i = 0; i < ctx; ++i) {
    const float* row = pattern + i * ctx;  // [ctx]
    const std::size_t j = static_cast<std::size_t>(std::max_element(row, row + i + 1) - row);
    append_f32(bytes, static_cast<float>(scaled[i * ctx + j] - std::log(static_cast<double>(row[j]))));
  }
}

}  // namespace qkv
