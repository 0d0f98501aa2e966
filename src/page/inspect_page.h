// SPDX-License-Identifier: Apache-2.0
// The page of one forward pass: heads as maps, lines, matrices and steps, and what the model would say at each layer.
// One file without a network: style, script and the pass's numbers are in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "page/inspect_codes.h"

namespace qkv {

// What one layer did, all of it f32, row-major, owned by the caller.
struct InspectLayer {
  const float* q = nullptr;        // [ctx, n_head, d_k]     after rotary positions
  const float* k = nullptr;        // [ctx, n_kv_head, d_k]
  const float* v = nullptr;        // [ctx, n_kv_head, d_v]
  const float* z = nullptr;        // [ctx, n_head, d_v]
  const float* scaled = nullptr;   // [n_head, ctx, ctx]     q . k / sqrt(d_k), before the mask
  const float* pattern = nullptr;  // [n_head, ctx, ctx]     causal: row i reads keys 0 ... i
};

// Next-token probabilities of one stage: after the embedding, or after a layer.
struct InspectLens {
  const std::int32_t* top_ids = nullptr;  // [ctx, top]
  const float* top_probs = nullptr;       // [ctx, top]
  const float* next_prob = nullptr;       // [ctx]  of the token that follows in the text
  const float* last_prob = nullptr;       // [ctx]  of the token that the last stage holds most probable
  const float* entropy = nullptr;         // [ctx]  nats
};

struct InspectPage {
  std::string model;                                       // what to call it
  std::vector<std::pair<std::string, std::string>> facts;  // "layers", "12"
  std::int64_t n_head = 0, n_kv_head = 0, d_k = 0, d_v = 0;
  bool rotary = false;
  std::vector<std::string> tokens;   // [ctx] their bytes, which may be parts of characters
  std::vector<std::int32_t> ids;     // [ctx]
  std::vector<InspectLayer> layers;  // [n_layer]
  std::vector<InspectLens> lens;     // [n_layer + 1] or empty
  std::int64_t lens_top = 0;
  std::vector<std::pair<std::int32_t, std::string>> words;  // bytes of every id that lens names, sorted by id
  const float* rollout = nullptr;                           // [n_layer, ctx, ctx] or null
  // [n_layer * n_head] or empty: previous token, first token, duplicate token, induction; 0 ... 1
  std::vector<std::array<double, 4>> head_scores;
  std::vector<std::pair<std::int64_t, std::int64_t>> first;  // (layer, head) whose vectors are kept before all others
};

// The file's text. Its numbers have the best precision of inspect_ladder() that keeps it within `most` bytes; the page
// says which, and beside each number how far off it may be. Where even the last step is too large, the vectors q, k, v
// and z of the most interesting heads (`first`, then the highest head scores) are held in more bits than the others,
// and last of all those of the least interesting heads are left out, which the page says. Throws std::invalid_argument
// on NaN or infinity, and where the weights alone need more than `most`.
std::string inspect_html(const InspectPage& page, std::size_t most = 5'000'000);

// The bytes that one head's weights take in a page at the least. pattern: [ctx, ctx].
std::size_t least_weight_bytes(const float* pattern, std::size_t ctx);

}  // namespace qkv
