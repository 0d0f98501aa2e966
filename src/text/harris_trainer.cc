// SPDX-License-Identifier: Apache-2.0
#include "text/harris_trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <unordered_map>

#include "text/splitter.h"

namespace qkv {
namespace {

// Number of distinct bytes that follow each prefix in a set of words; the end counts as one.
class Varieties {
 public:
  void add(std::string_view word) {
    std::int32_t node = 0;
    for (const char byte : word) node = follow(node, static_cast<unsigned char>(byte));
    follow(node, kEnd);
  }
  // [word.size() + 1]: for each prefix of an added word.
  std::vector<int> of(std::string_view word) const {
    std::vector<int> result{branches_[0]};
    std::int32_t node = 0;
    for (const char byte : word) {
      node = edges_.at(key(node, static_cast<unsigned char>(byte)));
      result.push_back(branches_[static_cast<std::size_t>(node)]);
    }
    return result;
  }

 private:
  static constexpr unsigned kEnd = 256;
  static std::uint64_t key(std::int32_t node, unsigned byte) {
    return std::uint64_t{static_cast<std::uint32_t>(node)} << 9 | byte;
  }
  std::int32_t follow(std::int32_t node, unsigned byte) {
    const auto [next, is_new] = edges_.emplace(key(node, byte), static_cast<std::int32_t>(branches_.size()));
    if (is_new) {
      ++branches_[static_cast<std::size_t>(node)];
      branches_.push_back(0);
    }
    return next->second;
  }

  std::unordered_map<std::uint64_t, std::int32_t> edges_;
  std::vector<int> branches_{0};  // [nodes]
};

std::string reversed(std::string_view word) { return {word.rbegin(), word.rend()}; }

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Cut positions in a word, as byte offsets.
std::vector<std::size_t> cuts(std::string_view word, const Varieties& after, const Varieties& before) {
  const std::vector<int> forward = after.of(word), backward = before.of(reversed(word));  // [size + 1]
  const std::size_t n = word.size();
  std::vector<double> height(n + 1, 0);
  for (std::size_t i = 1; i < n; ++i)
    height[i] = std::log(static_cast<double>(forward[i])) + std::log(static_cast<double>(backward[n - i]));
  std::vector<std::size_t> result;
  for (std::size_t i = 1; i < n; ++i)
    if (height[i] > height[i - 1] && height[i] >= height[i + 1] && begins_character(word[i])) result.push_back(i);
  return result;
}

}  // namespace

TokenizerData harris_data(const std::vector<std::string>& segments, bool bytes_first) {
  TokenizerData data;
  data.longest_match = true;
  const auto add_bytes = [&] {
    for (int byte = 0; byte < 256; ++byte) data.tokens.emplace_back(1, static_cast<char>(byte));
  };
  if (bytes_first) add_bytes();
  for (const std::string& segment : segments) data.tokens.push_back(segment);
  if (!bytes_first) add_bytes();
  data.end_token = static_cast<std::int32_t>(data.tokens.size());
  data.tokens.emplace_back(kEndToken);
  AddedToken end;
  end.id = data.end_token;
  end.content = kEndToken;
  end.special = true;
  data.added.push_back(end);
  return data;
}

TokenizerData train_harris_data(std::string_view text, std::int64_t size) {
  if (size < 257) throw std::invalid_argument("[harris] expected at least 257 tokens; found " + std::to_string(size));
  std::map<std::string_view, std::int64_t> words;  // sorted, so that results do not depend on hash order
  Splitter({std::string(kGpt2Pattern)}).split(text, [&](std::string_view piece) { ++words[piece]; });
  Varieties after, before;
  for (const auto& [word, ignored] : words) {
    after.add(word);
    before.add(reversed(word));
  }
  std::map<std::string, std::int64_t> counts;
  for (const auto& [word, count] : words) {
    std::vector<std::size_t> ends = cuts(word, after, before);
    if (!ends.empty()) counts[std::string(word)] += count;
    ends.push_back(word.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      counts[std::string(word.substr(begin, end - begin))] += count;
      begin = end;
    }
  }
  std::vector<std::pair<std::int64_t, std::string>> ranked;  // bytes saved, segment
  for (const auto& [segment, count] : counts)
    if (segment.size() > 1 && count > 1)
      ranked.emplace_back(count * static_cast<std::int64_t>(segment.size() - 1), segment);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(size - 257)));
  std::vector<std::string> segments;
  for (auto& [ignored, segment] : ranked) segments.push_back(std::move(segment));
  std::stable_sort(segments.begin(), segments.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return harris_data(segments);
}

}  // namespace qkv
