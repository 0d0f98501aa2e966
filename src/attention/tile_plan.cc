// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_plan.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace qkv {
namespace {

thread_local Tensor arena;  // grows, never shrinks

constexpr std::size_t kKeptBlocks = 8;
thread_local std::vector<Tensor> kept_blocks;

}  // namespace

CallMemory::CallMemory(std::int64_t floats) {
  auto best = kept_blocks.end();
  for (auto it = kept_blocks.begin(); it != kept_blocks.end(); ++it)
    if (it->size() >= floats && (best == kept_blocks.end() || it->size() < best->size())) best = it;
  if (best == kept_blocks.end()) {
    block_ = Tensor({floats});
  } else {
    block_ = std::move(*best);
    kept_blocks.erase(best);
  }
  data_ = block_.data();
}

CallMemory::~CallMemory() {
  kept_blocks.reserve(kKeptBlocks + 1);
  kept_blocks.push_back(std::move(block_));
  if (kept_blocks.size() <= kKeptBlocks) return;
  const auto smaller = [](const Tensor& a, const Tensor& b) { return a.size() < b.size(); };
  kept_blocks.erase(std::min_element(kept_blocks.begin(), kept_blocks.end(), smaller));
}

TilePlan::TilePlan(const AttentionProblem& problem, bool all_bf16)
    : p(problem), table(kernels()), bf16(all_bf16 && table.interleave != nullptr) {
  const bool natural = p.softcap > 0 || !p.slopes.empty() || (p.mask && !p.boolean_mask);
  const double to_log2 = p.scale * kLog2E;
  // The maximum score is the maximum exponent only if the factor is positive; outside these limits, the factor itself
  // or the step of 8 / unit by which maxima move would not be finite.
  if (!natural && to_log2 > 0x1p-100 && to_log2 < 0x1p127) {
    score_factor = 1;
    unit = static_cast<float>(to_log2);
  } else {
    score_factor = static_cast<float>(p.scale);
    unit = static_cast<float>(kLog2E);
  }
}

void Prefetcher::add(const void* first, std::int64_t rows, std::int64_t stride, std::int64_t bytes) noexcept {
  if (rows > 0 && bytes > 0) parts_[count_++] = {static_cast<const char*>(first), rows, stride, bytes};
}

void Prefetcher::step() noexcept {
  constexpr std::int64_t kLine = 64, kLines = 32;
  for (std::int64_t line = 0; line < kLines && part_ < count_; ++line) {
    const Part& p = parts_[part_];
    __builtin_prefetch(p.first + row_ * p.stride + byte_, 0, 2);
    if ((byte_ += kLine) < p.bytes) continue;
    byte_ = 0;
    if (++row_ < p.rows) continue;
    row_ = 0, ++part_;
  }
}

Scratch::Scratch(const TilePlan& plan, int key_tiles)
    : d_k(round_up(plan.p.d_k, 16)), d_v(round_up(plan.p.d_v, 16)), bf16_(plan.bf16) {
  const std::int64_t widest = std::max(d_k, d_v), tile = kMaxWidth * kKeyTile;
  const std::int64_t buffers = (key_tiles + 1) * kKeyTile * (d_k + d_v) * (bf16_ ? 2 : 1);
  const std::int64_t sums = key_tiles * kKeyTile * (d_k + d_v);  // for the same key tiles
  const std::int64_t need = kMaxWidth * 16 * widest + tile * 9 + buffers + sums + kSplitKeys * kNarrowTile + 4096;
  if (arena.size() < need) arena = Tensor({need});
  qt = take(kMaxWidth * d_k), dot = take(kMaxWidth * d_v);
  s = take(tile), ds = take(tile), slope = take(tile);
  bias = take(tile), bias_rows = take(tile);
  rows = take(kMaxWidth * widest), split = take(kSplitKeys * kNarrowTile);
  keys = take_key_buffers();
  qt_pairs = dot_pairs = p_pairs = ds_pairs = p_rows = ds_rows = nullptr;
  if (!bf16_) return;
  qt_pairs = take16(kMaxWidth * d_k), dot_pairs = take16(kMaxWidth * d_v);
  p_pairs = take16(tile), ds_pairs = take16(tile), p_rows = take16(tile), ds_rows = take16(tile);
}

KeyBuffers Scratch::take_key_buffers() {
  KeyBuffers b{d_k, d_v, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  if (bf16_) {
    b.k16 = take16(kKeyTile * d_k), b.v16 = take16(kKeyTile * d_v);
    b.k_pairs = take16(kKeyTile * d_k), b.v_pairs = take16(kKeyTile * d_v);
  } else {
    b.k = take(kKeyTile * d_k), b.v = take(kKeyTile * d_v);
  }
  return b;
}

float* Scratch::take(std::int64_t floats) {
  float* at = arena.data() + used_;
  used_ += static_cast<std::size_t>(round_up(floats, 16));
  if (used_ > static_cast<std::size_t>(arena.size())) throw std::bad_alloc();
  return at;
}

}  // namespace qkv
