// SPDX-License-Identifier: Apache-2.0
// The tiled backward pass: scores are recomputed, O(q_len + kv_len) memory.
//
//   p  = exp(scores - lse)        dv = p^T dout
//   dp = dout v^T                 dscores = p * (dp - delta), delta = rowsum(dout * out)
//   with dropout: dp and the p in dv are 0 where dropped and divided by (1 - p) where kept
//   dq = scale * dscores k        dk = scale * dscores^T q
//
// A task is one split of kBackwardSplit keys of one key head: it owns their dk and dv and iterates over the query tiles
// that read them. Each query tile's dq is summed over the splits in order: a task waits for its turn, so the bits never
// depend on the number of threads. Tasks start in order, so a task that others wait for has always started. The
// gradient of a mask is summed in the same way (mask_gradient.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attention/elements.h"
#include "attention/mask_gradient.h"
#include "attention/tile_gradients.h"
#include "attention/turns.h"
#include "core/parallel.h"

namespace qkv {
namespace {

constexpr int kBackwardSplit = 256;
constexpr int kSplitTiles = kBackwardSplit / kKeyTile + 1;
constexpr float kSkip = -std::numeric_limits<float>::infinity();  // weight of a masked pair

// Writes zero rows [begin, end) of x[b][h].
void clear_rows(const View& x, std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t end, std::int64_t d) {
  const std::vector<float> zeros(static_cast<std::size_t>(d));
  for (std::int64_t i = begin; i < end; ++i)
    narrow_elements(x.dtype, x.data, b * x.strides[0] + h * x.strides[1] + i * x.strides[2], x.strides[3], d,
                    zeros.data());
}

class Backward {
 public:
  Backward(const TilePlan& plan, const RowStatistics& statistics, const ConstView& dout,
           const AttentionGradients& gradients)
      : plan_(plan),
        p_(plan.p),
        statistics_(statistics),
        dout_(dout),
        gradients_(gradients),
        tiling_(plan),
        d_k_(round_up(p_.d_k, 16)),
        d_v_(round_up(p_.d_v, 16)),
        splits_{0, p_.kv_len, p_.first_key, kBackwardSplit},
        split_count_(p_.kv_len == 0 ? 0 : split_of(p_.kv_len - 1) + 1),
        turns_(p_.batch * p_.n_kv_head * tiling_.tiles()) {}

  void run() {
    const std::int64_t tiles = p_.batch * p_.n_kv_head * tiling_.tiles();
    if (gradients_.dmask) mask_.emplace(plan_, tiling_, split_count_, gradients_.dmask);
    if (gradients_.dq) {
      sums_.emplace(split_count_ > 1 ? tiles * d_k_ * kMaxWidth : 0);
      clear_unread_queries();
    }
    // All heads of one split before the next split, so that a task that waits for an earlier split of the same head
    // waits for one that started long ago.
    const std::int64_t heads = p_.batch * p_.n_kv_head;
    parallel_for(heads * split_count_, [&](std::int64_t task) {
      try {
        const std::int64_t head = task % heads;
        run_split(head / p_.n_kv_head, head % p_.n_kv_head, task / heads);
      } catch (...) {
        turns_.fail();
        if (mask_) mask_->fail();
        throw;
      }
    });
    if (mask_) mask_->store();
  }

 private:
  std::int64_t split_of(std::int64_t j) const noexcept {
    const std::int64_t offset = p_.first_key % kBackwardSplit;
    return (j + offset) / kBackwardSplit;
  }

  void clear_unread_queries() const {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      for (std::int64_t h = 0; h < p_.n_head; ++h)
        clear_rows(gradients_.dq, b, h, p_.sequences[static_cast<std::size_t>(b)].q_len, p_.q_len, p_.d_k);
      for (std::int64_t i = 0; i < p_.n_kv_head * tiling_.tiles(); ++i) {
        const QueryTile tile = tiling_.tile(b, i / tiling_.tiles(), i % tiling_.tiles());
        if (tile.rows > 0 && tile.any_begin >= tile.any_end)
          for (int r = 0; r < tile.rows; ++r)
            clear_rows(gradients_.dq, b, tile.head(r), tile.query(r), tile.query(r) + 1, p_.d_k);
      }
    }
  }

  void run_split(std::int64_t b, std::int64_t kv_head, std::int64_t split) {
    std::int64_t begin = 0;
    for (std::int64_t s = 0; s < split; ++s) begin = splits_.next(begin);
    const std::int64_t end = splits_.next(begin);
    Scratch scratch(plan_, kSplitTiles);
    GradientRows rows(plan_, scratch);
    KeyTile keys[kSplitTiles];  // all key tiles of the split
    int count = 0;
    const KeySteps tiles{begin, std::min(end, p_.sequences[static_cast<std::size_t>(b)].kv_len), p_.first_key,
                         kKeyTile};
    for (std::int64_t j = begin; j < tiles.end; j = tiles.next(j))
      keys[count++] = load_keys(plan_, b, kv_head, j, tiles.next(j), KeyUse::backward, scratch.take_key_buffers());
    float* dqt = scratch.take(d_k_ * kMaxWidth);     // [d_k_][width]
    float* dk = scratch.take((end - begin) * d_k_);  // [end - begin][d_k_]
    float* dv = scratch.take((end - begin) * d_v_);  // [end - begin][d_v_]
    std::fill_n(dk, (end - begin) * d_k_, 0.0f);
    std::fill_n(dv, (end - begin) * d_v_, 0.0f);
    std::optional<MaskGradientTask> mask;
    if (mask_) mask.emplace(*mask_, b, kv_head, split, begin, end);
    for (std::int64_t i = 0; i < tiling_.tiles(); ++i) {
      // All heads of some queries before the next queries, so that tasks adding to the same mask wait for only one
      // tile.
      const std::int64_t heads = tiling_.tiles() / tiling_.query_tiles();
      const std::int64_t index = i % heads * tiling_.query_tiles() + i / heads;
      const QueryTile tile = tiling_.tile(b, kv_head, index);
      if (mask) mask->start(tile);
      const bool read = tile.rows > 0 && std::max(begin, tile.any_begin) < std::min(end, tile.any_end);
      if (read) {
        rows.load(tile, statistics_, dout_);
        std::fill_n(dqt, d_k_ * tile.kernels->width, 0.0f);
        for (int k = 0; k < count; ++k) {
          const std::int64_t row = keys[k].j0 - begin;
          add_pair(tile, rows, keys[k], dk + row * d_k_, dv + row * d_v_, dqt, mask, scratch);
        }
      }
      if (mask) mask->finish(tile);
      if (read && gradients_.dq) add_queries(tile, index, split, dqt, scratch);
    }
    if (mask) mask->store();
    store_keys(gradients_.dk, b, kv_head, begin, end, p_.d_k, static_cast<float>(p_.scale), d_k_, dk);
    store_keys(gradients_.dv, b, kv_head, begin, end, p_.d_v, 1.0f, d_v_, dv);
  }

  // The contribution of one query tile and one key tile, up to the last key that the query tile reads, to dk, dv (rows
  // of the key tile), dqt and the mask.
  void add_pair(const QueryTile& tile, const GradientRows& rows, KeyTile keys, float* dk, float* dv, float* dqt,
                std::optional<MaskGradientTask>& mask, Scratch& scratch) const {
    keys.n = static_cast<int>(std::min<std::int64_t>(keys.n, tile.any_end - keys.j0));
    if (keys.n <= 0 || keys.j0 + keys.n <= tile.any_begin) return;
    const int width = tile.kernels->width, lanes = tile.kernels->lanes;
    std::uint64_t bits[kKeyTile];
    const TileGradients g = compute_gradients(plan_, tile, keys, rows, scratch, bits);
    if (mask) mask->add(tile, g.scores, keys.j0, scratch);
    if (!gradients_.dq && !gradients_.dk && !gradients_.dv) return;
    finish_gradients(plan_, tile, g.scores, scratch);
    NonFinites key_non_finites;
    if (g.careful && gradients_.dq) key_non_finites = take_non_finites_of_keys(keys, plan_, scratch.keys);
    for (int i = 0; i < g.scores.segments; ++i) {
      const Segment& part = g.scores.segment[i];
      const int column = part.first * lanes, count = std::min(tile.rows, part.last * lanes) - column;
      if (count <= 0) continue;
      const std::int64_t row = part.k0;
      add_segment(tile, keys, rows, part, column, count, dk + row * d_k_, dv + row * d_v_, dqt, scratch);
      if (!g.careful) continue;
      for (int key = part.k0; key < part.k1; ++key)
        for (int r = column; r < column + count; ++r)
          if (!(bits[key] >> r & 1)) scratch.s[key * width + r] = scratch.ds[key * width + r] = kSkip;
      add_non_finites(rows.dout_non_finites, scratch.s, part, column, count, width, dv + row * d_v_, d_v_);
      add_non_finites(rows.q_non_finites, scratch.ds, part, column, count, width, dk + row * d_k_, d_k_);
      for (const NonFinite& x : key_non_finites)
        for (int r = column; x.row >= part.k0 && x.row < part.k1 && r < column + count; ++r)
          if (scratch.ds[x.row * width + r] != kSkip)
            dqt[x.column * width + r] += scratch.ds[x.row * width + r] * x.value;
    }
  }

  // The three sums of one segment; dk and dv begin at its first key; columns [column, column + count) are its rows.
  void add_segment(const QueryTile& tile, const KeyTile& keys, const GradientRows& rows, const Segment& part,
                   int column, int count, float* dk, float* dv, float* dqt, const Scratch& scratch) const noexcept {
    const TileKernels& kernel = *tile.kernels;
    const int n = part.k1 - part.k0;
    const std::int64_t at = std::int64_t{part.k0} * kernel.width, d_k8 = round_up(p_.d_k, 8);
    if (plan_.bf16) {
      const Bf16TileKernels& products = *kernel.bf16;
      const int pairs = (count + 1) / 2;
      if (gradients_.dv)
        products.outer(scratch.p_rows + at + column, rows.dout_pairs + column * rows.ld_dout, rows.ld_dout, d_v_, n,
                       pairs, dv, d_v_);
      if (gradients_.dk)
        products.outer(scratch.ds_rows + at + column, rows.q_pairs + column * rows.ld_q, rows.ld_q, d_k_, n, pairs, dk,
                       d_k_);
      if (gradients_.dq)
        products.accumulate(scratch.ds_pairs + at, keys.k_pairs + part.k0 * scratch.d_k, scratch.d_k, d_k8, (n + 1) / 2,
                            tile.rows, part.first, part.last, false, dqt);
      return;
    }
    const float *s = scratch.s + at, *ds = scratch.ds + at;
    if (gradients_.dv)
      kernel.outer(s + column, rows.dout + column * rows.ld_dout, rows.ld_dout, d_v_, n, count, dv, d_v_);
    if (gradients_.dk) kernel.outer(ds + column, rows.q + column * rows.ld_q, rows.ld_q, d_k_, n, count, dk, d_k_);
    if (gradients_.dq)
      kernel.accumulate(ds, keys.k + part.k0 * keys.ldk, keys.ldk, d_k8, n, tile.rows, part.first, part.last, false,
                        dqt);
  }

  // Adds the non-finite elements of rows to the keys that they may attend to.
  static void add_non_finites(const NonFinites& non_finites, const float* weights, const Segment& part, int column,
                              int count, int width, float* sums, std::int64_t ld) noexcept {
    for (const NonFinite& x : non_finites)
      for (int key = part.k0; x.row >= column && x.row < column + count && key < part.k1; ++key)
        if (weights[key * width + x.row] != kSkip)
          sums[(key - part.k0) * ld + x.column] += weights[key * width + x.row] * x.value;
  }

  // Adds a split's dqt to the tile's sum after the preceding splits have been added; the last split writes the result.
  void add_queries(const QueryTile& tile, std::int64_t index, std::int64_t split, float* dqt, Scratch& scratch) {
    const std::int64_t first = split_of(tile.any_begin), last = split_of(tile.any_end - 1);
    const std::int64_t id = (tile.b * p_.n_kv_head + tile.kv_head) * tiling_.tiles() + index;
    turns_.wait(id, split - first);
    float* sum = first == last ? dqt : sums_->data() + id * d_k_ * kMaxWidth;
    const std::int64_t count = p_.d_k * tile.kernels->width;
    if (first != last) {
      if (split == first) std::fill_n(sum, count, 0.0f);
      for (std::int64_t i = 0; i < count; ++i) sum[i] += dqt[i];
    }
    if (split == last) {
      float factor[kMaxWidth];
      std::fill_n(factor, kMaxWidth, static_cast<float>(p_.scale));
      store_rows_transposed(sum, tile, p_.d_k, factor, gradients_.dq, scratch);
    }
    turns_.pass(id, split - first + 1);
  }

  static void store_keys(const View& x, std::int64_t b, std::int64_t kv_head, std::int64_t begin, std::int64_t end,
                         std::int64_t d, float factor, std::int64_t ld, float* sums) {
    if (!x) return;
    for (std::int64_t j = begin; j < end; ++j) {
      float* row = sums + (j - begin) * ld;
      for (std::int64_t c = 0; c < d; ++c) row[c] = row[c] * factor + 0.0f;
      narrow_elements(x.dtype, x.data, b * x.strides[0] + kv_head * x.strides[1] + j * x.strides[2], x.strides[3], d,
                      row);
    }
  }

  const TilePlan& plan_;
  const AttentionProblem& p_;
  const RowStatistics& statistics_;
  const ConstView& dout_;
  const AttentionGradients& gradients_;
  const RowTiling tiling_;
  std::int64_t d_k_, d_v_;  // padded to multiples of 16
  KeySteps splits_;
  std::int64_t split_count_;
  std::optional<CallMemory> sums_;  // [tiles][d_k_][width]: dq so far, transposed
  Turns turns_;                     // [tiles] splits that have added their dq
  std::optional<MaskGradient> mask_;
};

}  // namespace

void tiled_backward(const AttentionProblem& p, const ConstView& out, const ConstView& lse, const ConstView& dout,
                    const AttentionGradients& gradients) {
  const TilePlan plan(p, p.q.dtype == DType::bf16 && dout.dtype == DType::bf16);
  const RowStatistics statistics(plan, out, lse, dout);
  if (gradients.dq || gradients.dk || gradients.dv || gradients.dmask)
    Backward(plan, statistics, dout, gradients).run();
  if (gradients.dsinks) sink_gradient(plan, statistics, gradients.dsinks);
}

}  // namespace qkv
