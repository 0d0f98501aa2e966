// SPDX-License-Identifier: Apache-2.0
// The HTML page of one forward pass: heads as maps, lines, matrices and steps, and the logit lens. One self-contained
// file: style, script and numbers are embedded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "page/inspect_codes.h"

namespace qkv {

// The activations of one layer: f32, row-major, owned by the caller.
struct InspectLayer {
  const float* q = nullptr;        // [ctx, n_head, d_k]     after RoPE
  const float* k = nullptr;        // [ctx, n_kv_head, d_k]
  const float* v = nullptr;        // [ctx, n_kv_head, d_v]
  const float* z = nullptr;        // [ctx, n_head, d_v]
  const float* scaled = nullptr;   // [n_head, ctx, ctx]     q . k / sqrt(d_k), before the mask
  const float* pattern = nullptr;  // [n_head, ctx, ctx]     causal: row i has keys 0 ... i
};

// Next-token probabilities of one stage: after the embedding, or after a layer.
struct InspectLens {
  const std::int32_t* top_ids = nullptr;  // [ctx, top]
  const float* top_probs = nullptr;       // [ctx, top]
  const float* next_prob = nullptr;       // [ctx]  of the actual next token
  const float* last_prob = nullptr;       // [ctx]  of the top token of the last stage
  const float* entropy = nullptr;         // [ctx]  nats
};

struct InspectPage {
  std::string model;                                       // name
  std::vector<std::pair<std::string, std::string>> facts;  // "layers", "12"
  std::int64_t n_head = 0, n_kv_head = 0, d_k = 0, d_v = 0;
  bool rotary = false;
  std::vector<std::string> tokens;   // [ctx] bytes, possibly parts of characters
  std::vector<std::int32_t> ids;     // [ctx]
  std::vector<InspectLayer> layers;  // [n_layer]
  std::vector<InspectLens> lens;     // [n_layer + 1] or empty
  std::int64_t lens_top = 0;
  std::vector<std::pair<std::int32_t, std::string>> words;  // bytes of every id in `lens`, sorted by id
  const float* rollout = nullptr;                           // [n_layer, ctx, ctx] or null
  // [n_layer * n_head] or empty: previous token, first token, duplicate token, induction; 0 ... 1
  std::vector<std::array<double, 4>> head_scores;
  std::vector<std::pair<std::int64_t, std::int64_t>> first;  // (layer, head) whose vectors have priority
};

// The text of the file. Its numbers have the best precision of inspect_ladder() that keeps it within `most` bytes; the
// page shows the precision, and the error bound of each number. If even the last level is too large, the vectors q, k,
// v and z of the most interesting heads (`first`, then the highest head scores) get more bits than the others, and
// finally those of the least interesting heads are omitted, which the page reports. Throws std::invalid_argument on NaN
// or infinity, or if the weights by themselves exceed `most`.
std::string inspect_html(const InspectPage& page, std::size_t most = 5'000'000);

// Lower bound of the bytes of one head's weights in a page. pattern: [ctx, ctx].
std::size_t least_weight_bytes(const float* pattern, std::size_t ctx);

}  // namespace qkv
