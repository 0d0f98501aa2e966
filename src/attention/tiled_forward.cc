// SPDX-License-Identifier: Apache-2.0
// The forward pass with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): O(q_len + kv_len) memory.
//
// A row's result is the merge, in order, of its splits of kSplitKeys keys; each split starts from empty sums and
// processes its key tiles in order. Splits begin at absolute positions, so a row has the same bits however its splits
// are computed: in one thread, in several threads, or in decode token by token.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "attention/elements.h"
#include "attention/tile_scores.h"
#include "core/float_types.h"
#include "core/parallel.h"

namespace qkv {
namespace {

constexpr int kTasksPerThread = 16;  // so that there is little idle time at the end
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Running state of the rows of a tile.
struct Sums {
  float* m;   // [width] reference maximum, initially -inf
  float* l;   // [width] sum of exponentials relative to m
  float* ot;  // [d_v_padded][width] sum of exponentials times values
};

Sums take_sums(Scratch& scratch) {
  return {scratch.take(kMaxWidth), scratch.take(kMaxWidth), scratch.take(kMaxWidth * scratch.d_v)};
}

void clear(const Sums& sums, const QueryTile& tile, std::int64_t d_v) noexcept {
  std::fill_n(sums.m, tile.kernels->width, kMinusInfinity);
  std::fill_n(sums.l, tile.kernels->width, 0.0f);
  std::fill_n(sums.ot, d_v * tile.kernels->width, 0.0f);
}

class Forward {
 public:
  Forward(const AttentionProblem& p, const AttentionResults& results)
      : p_(p),
        results_(results),
        plan_(p, p.q.dtype == DType::bf16),
        tiling_(plan_),
        d_v_padded_(round_up(p.d_v, 8)),
        runs_(plan_.score_factor == 1 && p.softcap == 0 && p.slopes.empty() && !p.mask && !p.dropout &&
              rows_in_place(plan_)) {}

  void run() {
    clear_masked_rows();
    if (plan_.bf16 && tiling_.tiles() > 2) packed_.emplace(plan_);
    const std::int64_t tasks = p_.batch * p_.n_kv_head * tiling_.tiles();
    if (tasks == 0) return;
    const std::int64_t pieces = p_.kv_len / kSplitKeys + 2;
    if (pieces > 2 && num_threads() > 1 && tasks < kTasksPerThread * num_threads())
      run_split(tasks, pieces);
    else
      parallel_for(tasks, [&](std::int64_t task) { run_tile(tile_of(task)); });
  }

 private:
  // Head by head, so that keys and values stay in the caches; within a head the last queries first, which read the most
  // under a causal mask, so that the last tasks are short.
  QueryTile tile_of(std::int64_t task) const {
    const std::int64_t head = task / tiling_.tiles(), index = tiling_.tiles() - 1 - task % tiling_.tiles();
    return tiling_.tile(head / p_.n_kv_head, head % p_.n_kv_head, index);
  }

  // Fills rows past a sequence's length, which are in no tile; probabilities are written only where keys are read.
  void clear_masked_rows() const {
    const bool padded = std::any_of(p_.sequences.begin(), p_.sequences.end(),
                                    [&](const SequenceSpan& sequence) { return sequence.q_len < p_.q_len; });
    const auto fill = [&](const View& x, float value, std::int64_t d) {
      if (!x || (!padded && &x != &results_.probs)) return;
      parallel_for(p_.batch * p_.n_head, [&](std::int64_t bh) {
        const std::int64_t b = bh / p_.n_head, h = bh % p_.n_head;
        const std::vector<float> row(static_cast<std::size_t>(d), value);
        const bool all = &x == &results_.probs;
        for (std::int64_t i = all ? 0 : p_.sequences[static_cast<std::size_t>(b)].q_len; i < p_.q_len; ++i)
          narrow_elements(x.dtype, x.data, b * x.strides[0] + h * x.strides[1] + i * x.strides[2],
                          x.rank() > 3 ? x.strides[3] : 1, d, row.data());
      });
    };
    fill(results_.out, 0.0f, p_.d_v);
    fill(results_.lse, kMinusInfinity, 1);
    fill(results_.probs, 0.0f, p_.kv_len);
  }

  void run_tile(const QueryTile& tile) const {
    if (tile.rows == 0) return;
    Scratch scratch(plan_);
    load_queries(tile, scratch);
    prefetch_next(p_, results_, tile, packed_ ? &*packed_ : nullptr, scratch.ahead);
    Sums total = take_sums(scratch), split = take_sums(scratch);
    const KeySteps splits{tile.any_begin, tile.any_end, p_.first_key, kSplitKeys};
    clear(total, tile, splits.begin < splits.end ? 0 : d_v_padded_);
    bool first = true;
    for (std::int64_t j = splits.begin, end; j < splits.end; j = end) {
      end = splits.next(j);
      read_split(tile, j, end, first ? total : split, scratch);
      if (!first) merge(tile, split, total);
      first = false;
    }
    finish(tile, total, scratch);
  }

  // Few tiles and many keys, as in decode: the splits are the tasks, and are merged afterwards in the same order.
  void run_split(std::int64_t tasks, std::int64_t pieces) const {
    const std::int64_t width = tile_for(plan_.table, widest_rows()).width;
    const std::int64_t stride = (width * (d_v_padded_ + 2) + 15) / 16 * 16;
    const CallMemory partial(tasks * pieces * stride);  // [task][split][m, l, ot]
    const auto sums_of = [&](std::int64_t task, std::int64_t piece) {
      float* at = partial.data() + (task * pieces + piece) * stride;
      return Sums{at, at + width, at + 2 * width};
    };
    // A task is a run of splits: enough runs for all threads, each long enough to amortize its start.
    const std::int64_t runs = std::min(pieces, (2 * kTasksPerThread * num_threads() + tasks - 1) / tasks);
    const std::int64_t length = (pieces + runs - 1) / runs;
    parallel_for(tasks * runs, [&](std::int64_t i) {
      const std::int64_t task = i / runs, first = i % runs * length;
      const QueryTile tile = tile_of(task);
      if (tile.rows == 0) return;
      Scratch scratch(plan_);
      load_queries(tile, scratch);
      const KeySteps splits{tile.any_begin, tile.any_end, p_.first_key, kSplitKeys};
      std::int64_t piece = 0;
      for (std::int64_t j = splits.begin; j < splits.end && piece < first + length; j = splits.next(j), ++piece) {
        if (piece < first) continue;
        const Sums sums = sums_of(task, piece);
        read_split(tile, j, splits.next(j), sums, scratch);
      }
    });
    parallel_for(tasks, [&](std::int64_t task) {
      const QueryTile tile = tile_of(task);
      if (tile.rows == 0) return;
      Scratch scratch(plan_);
      load_queries(tile, scratch);
      const Sums total = sums_of(task, 0);
      if (tile.any_begin >= tile.any_end) clear(total, tile, d_v_padded_);
      const KeySteps splits{tile.any_begin, tile.any_end, p_.first_key, kSplitKeys};
      std::int64_t piece = 0;
      for (std::int64_t j = splits.begin; j < splits.end; j = splits.next(j), ++piece)
        if (piece > 0) merge(tile, sums_of(task, piece), total);
      finish(tile, total, scratch);
    });
  }

  void load_queries(const QueryTile& tile, Scratch& scratch) const noexcept {
    if (plan_.bf16)
      load_rows_in_pairs(p_.q, tile, p_.d_k, scratch, scratch.qt_pairs);
    else
      load_rows_transposed(p_.q, tile, p_.d_k, scratch, scratch.qt);
  }

  std::int64_t widest_rows() const {
    std::int64_t rows = 1;
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t i = 0; i < tiling_.tiles(); ++i)
        rows = std::max<std::int64_t>(rows, tiling_.tile(b, 0, i).rows);
    return rows;
  }

  void merge(const QueryTile& tile, const Sums& split, const Sums& total) const noexcept {
    tile.kernels->merge(plan_.unit, d_v_padded_, split.m, split.l, split.ot, total.m, total.l, total.ot);
  }

  // Keys [begin, end) of one split.
  void read_split(const QueryTile& tile, std::int64_t begin, std::int64_t end, const Sums& sums,
                  Scratch& scratch) const {
    const TileKernels& kernel = *tile.kernels;
    const int width = kernel.width;
    clear(sums, tile, 0);
    if (runs_ && width <= kNarrowTile && begin >= tile.all_begin && end <= tile.all_end)
      return read_split_in_runs(tile, begin, end, sums, scratch);
    bool fresh = true;
    const bool by_rows = plan_.bf16 && kernel.bf16->accumulate_rows, packed = packed_ && !by_rows;
    const KeySteps tiles{begin, end, p_.first_key, kKeyTile};
    for (std::int64_t j = begin, next; j < end; j = next) {
      next = tiles.next(j);
      KeyTile keys = load_keys(plan_, tile.b, tile.kv_head, j, next,
                               packed || by_rows ? KeyUse::forward_unpacked : KeyUse::forward, scratch.keys);
      if (packed) packed_->use_packed(keys, tile.b, tile.kv_head);
      const TileScores scores = compute_scores(plan_, tile, keys, scratch, false);
      if (scores.segments == 0) continue;
      kernel.rescale(plan_.unit, scores.max, d_v_padded_, sums.m, sums.l, fresh ? nullptr : sums.ot);
      std::uint64_t bits[kKeyTile];
      NonFinites non_finites;
      // The second element of an odd last pair may be a key that no row reads.
      const bool unread = scores.partial || (packed && keys.n % 2);
      if (unread && !(packed ? keys.finite : values_finite(keys, plan_))) {
        kernel.allowed_bits(scratch.s, keys.n, bits);
        non_finites = take_non_finites_of_values(keys, plan_, scratch.keys);
      }
      // `fresh` initializes the sums of every column to 0, so it needs a segment that covers them all.
      if (fresh && (scores.segment[0].first > 0 || scores.segment[0].last * kernel.lanes < width)) {
        std::fill_n(sums.ot, d_v_padded_ * width, 0.0f);
        fresh = false;
      }
      for (int i = 0; i < scores.segments; ++i) take_exponentials(tile, keys, scores.segment[i], sums, scratch);
      for (int i = 0; i < scores.segments; fresh = false) {  // merge adjacent segments read by the same vectors
        Segment g = scores.segment[i];
        for (; ++i < scores.segments && scores.segment[i].continues(g); g.k1 = scores.segment[i].k1) continue;
        accumulate(tile, keys, g, fresh, sums, scratch);
      }
      for (const NonFinite& x : non_finites) add_non_finite(tile, scores, x, bits[x.row], sums, scratch);
    }
    if (fresh) std::fill_n(sums.ot, d_v_padded_ * width, 0.0f);
  }

  // The same where few rows read all keys of the split and only the scale is between q . k and the softmax, as in
  // decode: all scores first, then all sums, so that memory is read in long runs. The order of each row's sums is
  // unchanged.
  void read_split_in_runs(const QueryTile& tile, std::int64_t begin, std::int64_t end, const Sums& sums,
                          Scratch& scratch) const noexcept {
    const TileKernels& kernel = *tile.kernels;
    const KeyTile keys = load_keys(plan_, tile.b, tile.kv_head, begin, end, KeyUse::forward_unpacked, scratch.keys);
    float max[kMaxWidth];
    std::fill_n(max, kernel.width, kMinusInfinity);
    prefetch(plan_.bf16 ? static_cast<const void*>(keys.v16) : keys.v);
    if (plan_.bf16)
      kernel.bf16->scores(keys.k16, keys.ldk, scratch.qt_pairs, p_.d_k / 2, keys.n, tile.rows, 0, 1, scratch.split,
                          max);
    else
      kernel.scores(keys.k, keys.ldk, scratch.qt, p_.d_k, keys.n, tile.rows, 0, 1, scratch.split, max);
    const KeySteps tiles{begin, end, p_.first_key, kKeyTile};
    for (std::int64_t j = begin, next; j < end; j = next) {
      next = tiles.next(j);
      const int n = static_cast<int>(next - j);
      float* s = scratch.split + (j - begin) * kernel.width;
      const std::int64_t v = (j - begin) * keys.ldv;
      prefetch(plan_.bf16 ? static_cast<const void*>(keys.v16 + v) : keys.v + v);
      std::fill_n(max, kernel.width, kMinusInfinity);
      kernel.column_max(s, n, 0, 1, max);
      kernel.rescale(plan_.unit, max, d_v_padded_, sums.m, sums.l, j == begin ? nullptr : sums.ot);
      if (plan_.bf16) {
        kernel.bf16->exponentials(plan_.unit, n, 0, 1, sums.m, sums.l, s, scratch.p_pairs);
        kernel.bf16->accumulate_rows(scratch.p_pairs, keys.v16 + v, keys.ldv, p_.d_v, n, tile.rows, j == begin,
                                     sums.ot);
      } else {
        kernel.exponentials(plan_.unit, n, 0, 1, sums.m, sums.l, s);
        kernel.accumulate(s, keys.v + v, keys.ldv, d_v_padded_, n, tile.rows, 0, 1, j == begin, sums.ot);
      }
    }
  }
  // Prefetches the start of a run, which would otherwise arrive late, as it would after each pause for exponentials.
  static void prefetch(const void* memory) noexcept {
    for (int line = 0; line < 24; ++line) __builtin_prefetch(static_cast<const char*>(memory) + line * 64, 0, 2);
  }

  // p = 2^((s - m) unit), l += p for one segment.
  void take_exponentials(const QueryTile& tile, const KeyTile& keys, const Segment& g, const Sums& sums,
                         Scratch& scratch) const noexcept {
    const TileKernels& kernel = *tile.kernels;
    const int n = g.k1 - g.k0;
    float* s = scratch.s + g.k0 * kernel.width;
    scratch.ahead.step();
    if (plan_.bf16) {
      std::uint16_t* pairs = scratch.p_pairs + g.k0 * kernel.width;
      kernel.bf16->exponentials(plan_.unit, n, g.first, g.last, sums.m, sums.l, s, pairs);
      drop_bf16_pairs(plan_, tile, keys.j0 + g.k0, n, g.first, g.last, pairs);
    } else {
      kernel.exponentials(plan_.unit, n, g.first, g.last, sums.m, sums.l, s);
      drop_pairs(plan_, tile, keys.j0 + g.k0, n, g.first, g.last, 1, s);
    }
  }

  // ot += p v
  void accumulate(const QueryTile& tile, const KeyTile& keys, const Segment& g, bool fresh, const Sums& sums,
                  Scratch& scratch) const noexcept {
    const TileKernels& kernel = *tile.kernels;
    const int n = g.k1 - g.k0;
    const std::uint16_t* pairs = scratch.p_pairs + g.k0 * kernel.width;
    scratch.ahead.step();
    if (!plan_.bf16)
      kernel.accumulate(scratch.s + g.k0 * kernel.width, keys.v + g.k0 * keys.ldv, keys.ldv, d_v_padded_, n, tile.rows,
                        g.first, g.last, fresh, sums.ot);
    else if (kernel.bf16->accumulate_rows)
      kernel.bf16->accumulate_rows(pairs, keys.v16 + g.k0 * keys.ldv, keys.ldv, p_.d_v, n, tile.rows, fresh, sums.ot);
    else
      kernel.bf16->accumulate(pairs, keys.v_pairs + g.k0 * scratch.d_v, scratch.d_v, d_v_padded_, (n + 1) / 2,
                              tile.rows, g.first, g.last, fresh, sums.ot);
  }

  // Adds a non-finite value to the rows that may attend to it.
  void add_non_finite(const QueryTile& tile, const TileScores& scores, const NonFinite& x, std::uint64_t bits,
                      const Sums& sums, const Scratch& scratch) const noexcept {
    const int width = tile.kernels->width, lanes = tile.kernels->lanes;
    for (int i = 0; i < scores.segments; ++i) {
      const Segment& g = scores.segment[i];
      if (x.row < g.k0 || x.row >= g.k1) continue;
      for (int r = g.first * lanes; r < std::min(tile.rows, g.last * lanes); ++r) {
        if (!(bits >> r & 1)) continue;
        const float p = plan_.bf16 ? widen(bf16{scratch.p_pairs[(x.row / 2 * width + r) * 2 + x.row % 2]})
                                   : scratch.s[x.row * width + r];
        sums.ot[x.column * width + r] += p * x.value;
      }
    }
  }

  // The factor for each row's sums, and its lse, including the sink.
  void divide_with_sinks(const QueryTile& tile, const Sums& total, float* factor, float* lse) const noexcept {
    const double unit = plan_.unit;
    for (int r = 0; r < tile.kernels->width; ++r) {
      const double m = total.m[r];
      const double sink = p_.sinks[static_cast<std::size_t>(tile.head(std::min(r, tile.rows - 1)))] * kLog2E / unit;
      const double top = std::fmax(m, sink), scale = std::exp2((m - top) * unit);
      const double sum = total.l[r] * scale + std::exp2((sink - top) * unit);
      factor[r] = static_cast<float>(scale / sum);
      lse[r] = static_cast<float>((top * unit + std::log2(sum)) * kLn2);
    }
  }

  // Divides, and writes the results of the tile's rows.
  void finish(const QueryTile& tile, const Sums& total, Scratch& scratch) const {
    const int width = tile.kernels->width;
    float factor[kMaxWidth], lse[kMaxWidth];
    if (p_.sinks.empty()) {
      for (int r = 0; r < width; ++r) factor[r] = 1.0f / total.l[r];
      for (int r = 0; r < width && results_.lse; ++r)
        lse[r] = static_cast<float>((double{total.m[r]} * double{plan_.unit} + double{std::log2(total.l[r])}) * kLn2);
    } else {
      divide_with_sinks(tile, total, factor, lse);
    }
    for (int r = 0; r < width; ++r) {
      if (total.m[r] != kMinusInfinity || total.l[r] != 0) continue;
      factor[r] = 0, lse[r] = kMinusInfinity;  // fully masked
      for (std::int64_t c = 0; c < d_v_padded_; ++c) total.ot[c * width + r] = 0;
    }
    float out_factor[kMaxWidth];
    for (int r = 0; r < width; ++r) out_factor[r] = factor[r] * static_cast<float>(p_.dropout.scale);
    if (results_.out) store_rows_transposed(total.ot, tile, p_.d_v, out_factor, results_.out, scratch);
    if (results_.lse) {
      const Dims& s = results_.lse.strides;
      const int queries = static_cast<int>(tile.queries);
      for (int r = 0; r < tile.rows; r += queries)
        narrow_elements(results_.lse.dtype, results_.lse.data, row_offset(s, tile, r), s[2], queries, lse + r);
    }
    if (results_.probs) write_probs(tile, total.m, factor, scratch);
  }

  // probs = 2^((score - m) unit) * factor, with recomputed scores.
  void write_probs(const QueryTile& tile, const float* m, const float* factor, Scratch& scratch) const {
    const TileKernels& kernel = *tile.kernels;
    const int width = kernel.width;
    const View& probs = results_.probs;
    float zeros[kMaxWidth] = {}, row[kKeyTile];
    std::uint64_t bits[kKeyTile];
    const KeySteps tiles{tile.any_begin, tile.any_end, p_.first_key, kKeyTile};
    for (std::int64_t j = tiles.begin, next; j < tiles.end; j = next) {
      next = tiles.next(j);
      const KeyTile keys = load_keys(plan_, tile.b, tile.kv_head, j, next, KeyUse::scores, scratch.keys);
      const TileScores scores = compute_scores(plan_, tile, keys, scratch, false);
      if (scores.segments > 0) kernel.allowed_bits(scratch.s, keys.n, bits);
      for (int i = 0; i < scores.segments; ++i) {
        const Segment& g = scores.segment[i];
        kernel.backward_softmax(plan_.unit, g.k1 - g.k0, g.first, g.last, m, zeros, scratch.s + g.k0 * width,
                                scratch.ds + g.k0 * width);
        for (int r = g.first * kernel.lanes; r < std::min(tile.rows, g.last * kernel.lanes); ++r) {
          for (int key = g.k0; key < g.k1; ++key) {
            const float p = scratch.s[key * width + r];
            row[key - g.k0] = bits[key] >> r & 1 ? p * factor[r] : 0.0f;  // the factor of a row with NaN is NaN
          }
          narrow_elements(probs.dtype, probs.data, row_offset(probs.strides, tile, r) + (j + g.k0) * probs.strides[3],
                          probs.strides[3], g.k1 - g.k0, row);
        }
      }
    }
  }

  const AttentionProblem& p_;
  const AttentionResults& results_;
  const TilePlan plan_;
  const RowTiling tiling_;
  std::int64_t d_v_padded_;  // rounded up to a multiple of 8
  bool runs_;                // scores are plain q . k, and keys and values are used in place
  std::optional<PackedValues> packed_;
};

}  // namespace

void tiled_forward(const AttentionProblem& p, const AttentionResults& results) { Forward(p, results).run(); }

}  // namespace qkv
