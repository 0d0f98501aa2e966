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
  std::string weights;                    // [n_layer * n_head] lines
  std::string scores;                     // [n_layer * n_head] lines, or empty
  std::string log_sums;                   // one line, or empty: [n_layer, n_head, ctx] f32
  std::string rollout;                    // [n_layer] lines, or empty
  std::vector<std::string> vectors;       // [n_layer * n_kv_head] groups: k and v of a key head, q and z of its queries
  std::vector<std::int32_t> vector_bits;  // of each group; 0: it is not held
  std::size_t size() const noexcept;      // as they stand in the page
};

// Throws std::invalid_argument if the page's parts do not fit together.
void check_inspect_page(const InspectPage& page);

// All but the vectors. Given up as soon as they are more than `most` bytes, which size() then is as well.
InspectBlobs inspect_blobs(const InspectPage& page, const InspectPrecision& precision, std::size_t most);
// Every group's vectors in so many bits.
void pack_vectors(InspectBlobs& blobs, const InspectPage& page, std::int32_t bits);
// Vectors of `most` bytes. Every group in 3 bits a number at least, and the most interesting ones in as many as there
// is room for; where not even 3 bits fit, the most interesting groups in 4 bits and no others. scores:
// text_scores(page). Returns whether every group is held.
bool fit_vectors(InspectBlobs& blobs, const InspectPage& page, const std::vector<std::array<double, 4>>& scores,
                 std::size_t most);

// How much each head behaves in known ways on this text, [n_layer * n_head]: the mean weight of one key over the
// queries that have it. Previous token: i - 1; first token: 0; duplicate token: where the same token stood last;
// induction: the key after that.
std::vector<std::array<double, 4>> text_scores(const InspectPage& page);

// Everything but the packed numbers; safe inside <script>.
// scores: text_scores(page).
std::string inspect_data(const InspectPage& page, const std::vector<std::array<double, 4>>& scores,
                         const InspectPrecision& precision, const std::vector<std::int32_t>& vector_bits);

}  // namespace qkv
