// SPDX-License-Identifier: Apache-2.0
#include "attention/mask_gradient.h"

#include <algorithm>

#include "attention/elements.h"
#include "core/parallel.h"

namespace qkv {
namespace {

constexpr int kSumColumns = 16;  // one vector of the widest instruction set
struct Ones {
  float rows[kMaxWidth][kSumColumns];
  constexpr Ones() : rows{} {
    for (auto& row : rows)
      for (float& x : row) x = 1;
  }
};
constexpr Ones kOnes;

}  // namespace

MaskGradient::MaskGradient(const TilePlan& plan, const RowTiling& tiling, std::int64_t splits, const View& dmask)
    : p_(plan.p), dmask_(dmask), query_tiles_(tiling.query_tiles()), splits_(splits) {
  const std::int64_t full[4] = {p_.batch, p_.n_head, p_.q_len, p_.kv_len};
  for (int i = 0; i < 4; ++i) axes_[i].full = full[i];
  for (int i = 0; i < dmask.rank(); ++i) {
    const int axis = 4 - dmask.rank() + i;
    axes_[axis].size = dmask.shape[i];
    given_[axis] = axes_[axis].summed() ? 0 : dmask.strides[i];
  }
  std::int64_t elements = 1;
  for (int i = 3; i >= 0; --i) {
    strides_[i] = axes_[i].summed() ? 0 : elements;
    elements *= axes_[i].size;
  }
  const bool by_element = !axes_[kQuery].summed() && !axes_[kKey].summed();
  if (!by_element || p_.batch == 0) {  // without sequences no task starts the sums at 0
    double_.assign(static_cast<std::size_t>(elements), 0.0);
  } else if (dmask.dtype == DType::f32 && given_[kKey] == 1) {
    strides_ = given_;
    single_ = static_cast<float*>(dmask.data);
  } else {
    memory_.emplace(elements);
    single_ = memory_->data();
  }
  const std::int64_t sums_a_head = (axes_[kQuery].summed() ? 1 : query_tiles_) * (axes_[kKey].summed() ? 1 : splits);
  turns_.emplace(axes_[kBatch].size * axes_[kHead].size * sums_a_head);
}

void MaskGradient::store() const {
  if (single_ && !memory_) return;
  const Axis &heads = axes_[kHead], &queries = axes_[kQuery], &keys = axes_[kKey];
  parallel_for(axes_[kBatch].size * heads.size, [&](std::int64_t bh) {
    const std::int64_t b = bh / heads.size, h = bh % heads.size;
    for (std::int64_t i = 0; i < queries.size; ++i)
      for (std::int64_t j = 0; j < keys.size; ++j) {
        const std::int64_t from = at(b, h, i, j);
        const float value = single_ ? single_[from] : static_cast<float>(double_[static_cast<std::size_t>(from)]);
        const std::int64_t to = b * given_[kBatch] + h * given_[kHead] + i * given_[kQuery] + j * given_[kKey];
        narrow_elements(dmask_.dtype, dmask_.data, to, 1, 1, &value);
      }
  });
}

MaskGradientTask::MaskGradientTask(MaskGradient& sums, std::int64_t b, std::int64_t kv_head, std::int64_t split,
                                   std::int64_t begin, std::int64_t end)
    : sums_(sums), b_(b), kv_head_(kv_head), split_(split), begin_(begin), end_(end) {
  if (!sums.axes_[MaskGradient::kQuery].summed()) return;
  const std::int64_t heads = sums.axes_[MaskGradient::kHead].summed() ? 1 : sums.p_.group;
  const std::int64_t keys = sums.axes_[MaskGradient::kKey].summed() ? 1 : end - begin;
  keys_.assign(static_cast<std::size_t>(heads * keys), 0.0);
}

// The sum that a tile with first head h adds to; with summed queries, the sum of the whole task.
std::int64_t MaskGradientTask::sum_of(std::int64_t h, std::int64_t query_tile) const noexcept {
  const MaskGradient& s = sums_;
  std::int64_t sum = s.axes_[MaskGradient::kBatch].summed() ? 0 : b_;
  sum = sum * s.axes_[MaskGradient::kHead].size + (s.axes_[MaskGradient::kHead].summed() ? 0 : h);
  if (!s.axes_[MaskGradient::kQuery].summed()) sum = sum * s.query_tiles_ + query_tile;
  return s.axes_[MaskGradient::kKey].summed() ? sum : sum * s.splits_ + split_;
}

// Its turn in that sum: summed axes, slowest first. Heads are counted individually.
std::int64_t MaskGradientTask::turn_of(std::int64_t h) const noexcept {
  const MaskGradient& s = sums_;
  std::int64_t turn = s.axes_[MaskGradient::kKey].summed() ? split_ : 0;
  if (s.axes_[MaskGradient::kBatch].summed()) turn = turn * s.p_.batch + b_;
  return s.axes_[MaskGradient::kHead].summed() ? turn * s.p_.n_head + h : turn;
}

void MaskGradientTask::start(const QueryTile& tile) {
  if (sums_.axes_[MaskGradient::kQuery].summed()) return;
  const std::int64_t turn = turn_of(tile.first_head);
  sums_.turns_->wait(sum_of(tile.first_head, tile.query_tile), turn);
  if (turn > 0 || !sums_.single_) return;
  for (std::int64_t h = tile.first_head; h < tile.first_head + tile.heads; ++h)
    for (std::int64_t i = tile.first_query; i < tile.past_query; ++i)
      std::fill_n(sums_.single_ + sums_.at(b_, h, i, begin_), end_ - begin_, 0.0f);
}

void MaskGradientTask::finish(const QueryTile& tile) noexcept {
  if (sums_.axes_[MaskGradient::kQuery].summed()) return;
  const bool summed = sums_.axes_[MaskGradient::kHead].summed();
  const std::int64_t turn = turn_of(tile.first_head) + (summed ? tile.heads : 1);
  sums_.turns_->pass(sum_of(tile.first_head, tile.query_tile), turn);
}

void MaskGradientTask::add(const QueryTile& tile, const TileScores& scores, std::int64_t j0, Scratch& scratch) {
  for (int i = 0; i < scores.segments; ++i) {
    if (sums_.axes_[MaskGradient::kQuery].summed())
      add_keys(tile, scores.segment[i], j0, scratch);
    else if (sums_.axes_[MaskGradient::kKey].summed())
      add_rows(tile, scores.segment[i], scratch);
    else
      add_elements(tile, scores.segment[i], j0, scratch);
  }
}

void MaskGradientTask::add_elements(const QueryTile& tile, const Segment& g, std::int64_t j0,
                                    Scratch& scratch) noexcept {
  const TileKernels& kernel = *tile.kernels;
  const int n = g.k1 - g.k0;
  float ones[kMaxWidth];
  std::fill_n(ones, kMaxWidth, 1.0f);
  kernel.transpose_out(scratch.ds + g.k0 * kernel.width, tile.rows, n, ones, scratch.bias_rows, kKeyTile);
  for (int r = g.first * kernel.lanes; r < std::min(tile.rows, g.last * kernel.lanes); ++r) {
    float* to = sums_.single_ + sums_.at(b_, tile.head(r), tile.query(r), j0 + g.k0);
    const float* from = scratch.bias_rows + r * kKeyTile;
    for (int j = 0; j < n; ++j) to[j] += from[j];
  }
}

// Sums over the queries for each key: in f32 within a tile, in f64 across tiles.
void MaskGradientTask::add_keys(const QueryTile& tile, const Segment& g, std::int64_t j0, Scratch& scratch) noexcept {
  const TileKernels& kernel = *tile.kernels;
  const int n = g.k1 - g.k0;
  const bool one_head = sums_.axes_[MaskGradient::kHead].summed(), one_key = sums_.axes_[MaskGradient::kKey].summed();
  const int begin = g.first * kernel.lanes, end = std::min(tile.rows, g.last * kernel.lanes);
  float* sums = scratch.bias;  // [n][kSumColumns], all columns equal
  for (int r = begin, next; r < end; r = next) {
    next = one_head ? end : std::min(end, static_cast<int>((r / tile.queries + 1) * tile.queries));
    std::fill_n(sums, n * kSumColumns, 0.0f);
    kernel.outer(scratch.ds + g.k0 * kernel.width + r, kOnes.rows[0], kSumColumns, kSumColumns, n, next - r, sums,
                 kSumColumns);
    const std::int64_t head = one_head ? 0 : tile.head(r) - kv_head_ * sums_.p_.group;
    double* to = keys_.data() + head * (one_key ? 1 : end_ - begin_);
    for (int j = 0; j < n; ++j) to[one_key ? 0 : j0 + g.k0 + j - begin_] += static_cast<double>(sums[j * kSumColumns]);
  }
}

// Sums over the keys for each query.
void MaskGradientTask::add_rows(const QueryTile& tile, const Segment& g, const Scratch& scratch) noexcept {
  const int width = tile.kernels->width, lanes = tile.kernels->lanes;
  for (int r = g.first * lanes; r < std::min(tile.rows, g.last * lanes); ++r) {
    double sum = 0;
    for (int key = g.k0; key < g.k1; ++key) sum += static_cast<double>(scratch.ds[key * width + r]);
    sums_.double_[static_cast<std::size_t>(sums_.at(b_, tile.head(r), tile.query(r), 0))] += sum;
  }
}

void MaskGradientTask::store() {
  if (!sums_.axes_[MaskGradient::kQuery].summed()) return;
  const std::int64_t group = sums_.p_.group, first = kv_head_ * group;
  const bool one_head = sums_.axes_[MaskGradient::kHead].summed();
  const std::int64_t heads = one_head ? 1 : group, keys = static_cast<std::int64_t>(keys_.size()) / heads;
  const std::int64_t sum = sum_of(first, 0), turn = turn_of(first);
  sums_.turns_->wait(sum, turn);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t j = 0; j < keys; ++j)
      sums_.double_[static_cast<std::size_t>(sums_.at(b_, first + h, 0, begin_ + j))] +=
          keys_[static_cast<std::size_t>(h * keys + j)];
  sums_.turns_->pass(sum, turn + (one_head ? group : 1));
}

}  // namespace qkv
