// SPDX-License-Identifier: Apache-2.0
// The data of the inspection page: a JSON object and the packed numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "page/inspect_page.h"

namespace qkv {

// The packed numbers as text: one line per head (or group of heads), each compressed separately so that the page can
// unpack single heads.
struct InspectBlobs {
  std::string weights;               // [n_layer * n_head] lines
  std::string scores;                // [n_layer * n_head] lines, or empty
  std::string log_sums;              // one line, or empty: [n_layer, n_head, ctx] f32
  std::string rollout;               // [n_layer] lines, or empty
  std::vector<std::string> vectors;  // [n_layer * n_kv_head] groups: k and v of a key head, q and z of its query heads
  std::vector<std::int32_t> vector_bits;  // per group; 0: not stored
  std::size_t size() const noexcept;      // bytes in the page
};

// Throws std::invalid_argument if the parts of the page are inconsistent.
void check_inspect_page(const InspectPage& page);

// Everything except the vectors. Stops as soon as size() exceeds `most` bytes.
InspectBlobs inspect_blobs(const InspectPage& page, const InspectPrecision& precision, std::size_t most);
// The vectors of every group with this many bits.
void pack_vectors(InspectBlobs& blobs, const InspectPage& page, std::int32_t bits);
// Vectors within `most` bytes: every group with at least 3 bits per number, the most interesting ones with as many as
// fit; if not even 3 bits fit, only the most interesting groups, with 4 bits. scores: text_scores(page). Returns
// whether every group is stored.
bool fit_vectors(InspectBlobs& blobs, const InspectPage& page, const std::vector<std::array<double, 4>>& scores,
                 std::size_t most);

// Scores of known head behaviors on this text, [n_layer * n_head]: the mean weight of one key over the queries that
// have it. Previous token: i - 1; first token: 0; duplicate token: the last occurrence of the same token; induction:
// the key after that.
std::vector<std::array<double, 4>> text_scores(const InspectPage& page);

// Everything except the packed numbers; safe inside <script>.
// scores: text_scores(page).
std::string inspect_data(const InspectPage& page, const std::vector<std::array<double, 4>>& scores,
                         const InspectPrecision& precision, const std::vector<std::int32_t>& vector_bits);

}  // namespace qkv
