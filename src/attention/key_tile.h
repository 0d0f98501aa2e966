// SPDX-License-Identifier: Apache-2.0
// How keys are divided into tiles. A tile begins at an absolute position (first_key + j) divisible by kKeyTile, a split
// at one divisible by its size; a row's bits depend only on these positions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/query_tile.h"

namespace qkv {

// The keys [begin, end) cut at absolute positions divisible by `step`; the first piece contains `begin`.
struct KeySteps {
  std::int64_t begin, end, first_key, step;
  std::int64_t next(std::int64_t j) const noexcept {  // the end of the piece that starts at j
    return std::min(end, j - (first_key + j) % step + step);
  }
};

// The keys [j0, j0 + n) of one (sequence, key head), and where their rows are: in the caller's memory, or copied to
// buffers if its layout is unsuitable. Either the f32 or the bf16 members are set.
struct KeyTile {
  std::int64_t j0;
  int n;
  const float *k, *v;                      // [n][d_k], [n][d_v], row strides ldk, ldv; zeros up to a multiple of 8
                                           // columns in v, and in k of KeyUse::backward
  const std::uint16_t *k16, *v16;          // the same in bf16, zeros up to a multiple of 2 columns
  const std::uint16_t *k_pairs, *v_pairs;  // [n / 2][ld][2], ld = d_k, d_v of the buffers; k_pairs for backward only
  std::int64_t ldk, ldv;
  bool finite;  // all of k and v; computed only for KeyUse::backward
};

// Only k; k and v; the same without the pairs of v (see PackedValues::lend); everything that the gradients need.
enum class KeyUse : std::uint8_t { scores, forward, forward_unpacked, backward };

// Whether the forward pass can use f32 rows in place, so that load_keys takes any number of them.
bool rows_in_place(const TilePlan& plan) noexcept;

KeyTile load_keys(const TilePlan& plan, std::int64_t b, std::int64_t kv_head, std::int64_t j0, std::int64_t j1,
                  KeyUse use, const KeyBuffers& buffers) noexcept;

// The pairs of all values, packed once when many query tiles read them (bf16 products).
class PackedValues {
 public:
  PackedValues(const TilePlan& plan);  // packs; throws std::bad_alloc
  // Points a tile that starts at a key tile boundary to the packed values.
  void use_packed(KeyTile& tile, std::int64_t b, std::int64_t kv_head) const noexcept;
  // Address of key j of a head within its pair.
  const std::uint16_t* pairs(std::int64_t b, std::int64_t kv_head, std::int64_t j) const noexcept;
  std::int64_t row_bytes() const noexcept { return d_v_ * 2; }

 private:
  std::int64_t slot(std::int64_t b, std::int64_t kv_head, std::int64_t j0) const noexcept;

  const TilePlan& plan_;
  std::int64_t tiles_, d_v_;
  CallMemory memory_;
  std::uint16_t* pairs_;  // [batch, n_kv_head, tiles, kKeyTile, d_v_]
  bool* finite_;          // [batch, n_kv_head, tiles]
};

// Prefetches what this tile will write, and the first inputs of the tile that this thread will probably process next:
// its queries, and the keys and values at the start of its window. packed: null where values are read in place.
void prefetch_next(const AttentionProblem& p, const AttentionResults& results, const QueryTile& tile,
                   const PackedValues* packed, Prefetcher& ahead) noexcept;

// An element that is inf or NaN. In tiles where some pairs are masked, such elements are replaced by 0 before a product
// and added separately where they are not masked, since 0 * NaN would not be 0.
struct NonFinite {
  int row;
  std::int64_t column;
  float value;
};
using NonFinites = std::vector<NonFinite>;

bool values_finite(const KeyTile& keys, const TilePlan& plan) noexcept;
// Replaces v (and k for KeyUse::backward, where it is summed) by copies with the non-finite elements set to 0.
NonFinites take_non_finites_of_values(KeyTile& keys, const TilePlan& plan, const KeyBuffers& buffers);
NonFinites take_non_finites_of_keys(KeyTile& keys, const TilePlan& plan, const KeyBuffers& buffers);

}  // namespace qkv
