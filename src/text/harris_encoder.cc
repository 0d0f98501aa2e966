// SPDX-License-Identifier: Apache-2.0
#include "text/harris_encoder.h"

#include <set>
#include <stdexcept>
#include <string>

namespace qkv {

HarrisEncoder::HarrisEncoder(const TokenizerData& data) : ids_{-1} {
  std::set<std::int32_t> added;
  for (const AddedToken& token : data.added) added.insert(token.id);
  std::size_t bytes = 0;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    if (added.contains(static_cast<std::int32_t>(id)) || token.empty()) continue;
    std::int32_t node = 0;
    for (const char byte : token) {
      const auto [next, is_new] = edges_.emplace(edge(node, byte), static_cast<std::int32_t>(ids_.size()));
      if (is_new) ids_.push_back(-1);
      node = next->second;
    }
    std::int32_t& slot = ids_[static_cast<std::size_t>(node)];
    if (slot >= 0 && token.size() == 1) continue;  // a segment of one byte: the first id counts
    if (slot >= 0)
      throw std::invalid_argument("[tokenizer] expected each segment once; found ids " + std::to_string(slot) +
                                  " and " + std::to_string(id) + " with the same bytes");
    slot = static_cast<std::int32_t>(id);
    bytes += token.size() == 1;
  }
  if (bytes != 256)
    throw std::invalid_argument("[tokenizer] expected a token for each of the 256 bytes; found " +
                                std::to_string(bytes));
}

void HarrisEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  for (std::size_t at = 0; at < text.size();) {
    std::int32_t node = 0, best = -1;
    std::size_t end = at;
    for (std::size_t i = at; i < text.size(); ++i) {
      const auto next = edges_.find(edge(node, text[i]));
      if (next == edges_.end()) break;
      node = next->second;
      if (ids_[static_cast<std::size_t>(node)] < 0) continue;
      best = ids_[static_cast<std::size_t>(node)];
      end = i + 1;
    }
    ids.push_back(best);  // every byte has a token
    at = end;
  }
}

}  // namespace qkv
