// SPDX-License-Identifier: Apache-2.0
// The scores of one query tile and one key tile, with every step between q . k and the softmax.
#pragma once

#include "attention/key_tile.h"
#include "attention/query_tile.h"

namespace qkv {

// Keys [k0, k1) of a key tile that the vectors [first, last) read; limited: some of their rows read only part of them.
struct Segment {
  int k0, k1, first, last;
  bool limited;

  bool continues(const Segment& g) const noexcept { return k0 == g.k1 && first == g.first && last == g.last; }
};

inline constexpr int kMaxSegments = 8;

struct TileScores {
  int segments = 0;
  Segment segment[kMaxSegments];
  bool partial = false;  // some pair of the tiles is masked
  float max[kMaxWidth];  // of each row
};

// scratch.s[j][row] from scratch.qt (or qt_pairs) and the keys: scaled, capped, biased, -inf where masked, in the
// plan's units; scratch.slope receives 1 - tanh^2 of the softcap if requested. Only the segments are written; without
// segments, no row reads any of these keys.
TileScores compute_scores(const TilePlan& plan, const QueryTile& tile, const KeyTile& keys, Scratch& scratch,
                          bool want_slope) noexcept;

}  // namespace qkv
