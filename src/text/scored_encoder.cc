// SPDX-License-Identifier: Apache-2.0
#include "text/scored_encoder.h"

#include <algorithm>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>

#include "text/utf8.h"

namespace qkv {
namespace {

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[tokenizer] expected " + expected + "; found " + found);
}

// Symbols as a doubly linked list in arrays; a symbol merged into its left neighbour is empty.
struct Symbol {
  std::string_view text;
  std::int32_t before, after;  // -1: none
};

struct Candidate {
  float score;
  std::int32_t left, right;
  std::size_t size;  // combined size when it was queued: stale if that has changed
  bool operator<(const Candidate& other) const noexcept {
    return score != other.score ? score < other.score : left > other.left;
  }
};

std::vector<Symbol> characters(std::string_view text) {
  std::vector<Symbol> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_step(text.substr(at)).length;
    const auto i = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({text.substr(at, length), i - 1, i + 1});
    at += length;
  }
  if (!symbols.empty()) symbols.back().after = -1;
  return symbols;
}

}  // namespace

std::string with_spaces(std::string_view text) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find(kMark, at), text.size());
    plain += text.substr(at, mark - at);
    if (mark < text.size()) plain += ' ';
    at = mark + kMark.size();
  }
  return plain;
}

ScoredEncoder::ScoredEncoder(const TokenizerData& data) : data_(data) {
  if (data.scores.size() != data.tokens.size())
    fail("a score for each of the " + std::to_string(data.tokens.size()) + " tokens",
         std::to_string(data.scores.size()));
  std::set<std::int32_t> apart(data.byte_ids.begin(), data.byte_ids.end());  // not pieces of text
  for (const AddedToken& token : data.added)
    if (token.special) apart.insert(token.id);
  apart.insert(data.unknown_token);
  for (std::size_t id = 0; id < data.tokens.size(); ++id)
    if (!apart.contains(static_cast<std::int32_t>(id))) pieces_.emplace(data.tokens[id], static_cast<std::int32_t>(id));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] =
        byte < data.byte_ids.size() && data.byte_ids[byte] >= 0 ? data.byte_ids[byte] : data.unknown_token;
    if (byte_ids_[byte] < 0)
      fail("a token for each of the 256 bytes, or an unknown one", "none for byte " + std::to_string(byte));
  }
}

void ScoredEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (text.size() > std::size_t{1} << 30) fail("texts of at most 1 GiB", std::to_string(text.size()) + " bytes");
  std::vector<Symbol> symbols = characters(text);
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto propose = [&](std::int32_t left) {
    if (left < 0 || symbol(left).after < 0) return;
    const std::int32_t right = symbol(left).after;
    const std::size_t size = symbol(left).text.size() + symbol(right).text.size();
    const auto found = pieces_.find({symbol(left).text.data(), size});
    if (found != pieces_.end()) queue.push({data_.scores[static_cast<std::size_t>(found->second)], left, right, size});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) propose(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol &left = symbol(best.left), &right = symbol(best.right);
    if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != best.size) continue;
    left.text = {left.text.data(), best.size};
    right.text = {};
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = best.left;
    propose(left.before);
    propose(best.left);
  }
  for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbol(i).after) {
    const auto found = pieces_.find(symbol(i).text);
    if (found != pieces_.end()) {
      ids.push_back(found->second);
    } else {
      for (const char byte : symbol(i).text) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    }
  }
}

}  // namespace qkv
