// SPDX-License-Identifier: Apache-2.0
// What the script of the inspection page reads: a JSON object and the packed numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "page/inspect_page.h"

namespace qkv {

// The packed numbers, each as text: one line a head (or group of heads), all of them inflated apart so that the page
// opens a head without the others.
struct InspectBlobs {
  std::string weights;   // [n_layer * n_head] lines
  std::string scores;    // [n_layer * n_head] lines, or empty
  std::string log_sums;  // one line, or empty: [n_layer, n_head, ctx] f32
  std::string vectors;   // [n_layer * n_kv_head] lines, of groups that are not held empty ones
  std::string rollout;   // [n_layer] lines, or empty
  std::size_t size() const noexcept {
    return weights.size() + scores.size() + log_sums.size() + vectors.size() + rollout.size();
  }
};

// Throws std::invalid_argument if the page's parts do not fit together.
void check_inspect_page(const InspectPage& page);

InspectBlobs inspect_blobs(const InspectPage& page, const InspectPrecision& precision);
// How much each head behaves in known ways on this text, [n_layer * n_head]: the mean weight of one key over the
// queries that have it. Previous token: i - 1; first token: 0; duplicate token: where the same token stood last;
// induction: the key after that.
std::vector<std::array<double, 4>> text_scores(const InspectPage& page);

// Empties lines of vectors, the least interesting groups of heads first, until they are `most` bytes.
void keep_vectors(InspectBlobs& blobs, const InspectPage& page, const std::vector<std::array<double, 4>>& scores,
                  std::size_t most);

// Everything but the packed numbers; safe inside <script>.
// scores: text_scores(page).
std::string inspect_data(const InspectPage& page, const std::vector<std::array<double, 4>>& scores,
                         const InspectPrecision& precision);

}  // namespace qkv
