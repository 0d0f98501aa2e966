// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_scores.h"

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/in_quotes.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr std::size_t kLongest = 4096;  // checking all splits of a token takes quadratic time

class Scores {
 public:
  explicit Scores(const TokenizerData& data) : data_(data) {
    std::set<std::int32_t> apart(data.byte_ids.begin(), data.byte_ids.end());  // not pieces of text
    for (const AddedToken& token : data.added) apart.insert(token.id);
    for (std::size_t id = 0; id < data.tokens.size(); ++id) {
      if (data.tokens[id].size() > kLongest) refuse("a token is longer than " + std::to_string(kLongest) + " bytes");
      if (!apart.contains(static_cast<std::int32_t>(id)) &&
          !pieces_.emplace(data.tokens[id], static_cast<std::int32_t>(id)).second)
        refuse("two tokens are " + in_quotes(data.tokens[id]));
    }
  }

  std::vector<float> scores() {
    find_groups();
    for (const auto& [piece, id] : pieces_) check_splits(piece, id);
    const auto lowest = -static_cast<float>(data_.tokens.size());
    std::vector<float> scores(data_.tokens.size(), lowest);
    for (std::size_t id = 0; id < scores.size(); ++id)
      if (groups_[id] >= 0) scores[id] = -static_cast<float>(groups_[id]);
    return scores;
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw std::invalid_argument("[gguf] GGUF cannot store these merges as scores: " + why);
  }
  const std::string& token(std::int32_t id) const { return data_.tokens[static_cast<std::size_t>(id)]; }
  std::int32_t& group(std::int32_t id) { return groups_[static_cast<std::size_t>(id)]; }

  // The merges of one token form a group; groups are numbered in merge order.
  void find_groups() {
    groups_.assign(data_.tokens.size(), -1);
    std::int32_t count = 0, open = -1;
    for (const Merge& merge : data_.merges) {
      if (merge.result != open) {
        if (group(merge.result) >= 0) refuse("the merges of " + in_quotes(token(merge.result)) + " are not contiguous");
        group(merge.result) = count++;
        open = merge.result;
      }
      merges_.emplace(std::pair(merge.left, merge.right), merge.result);
    }
  }

  // The piece for a stretch of text; -1 for a character without a piece, -2 if there is none.
  std::int32_t part(std::string_view text) const {
    if (const auto found = pieces_.find(text); found != pieces_.end()) return found->second;
    return utf8_step(text).length == text.size() ? -1 : -2;
  }

  void check_splits(std::string_view piece, std::int32_t id) const {
    for (std::size_t at = 0; (at += utf8_step(piece.substr(at)).length) < piece.size();) {
      const std::int32_t left = part(piece.substr(0, at)), right = part(piece.substr(at));
      if (left == -2 || right == -2) continue;
      const auto merge = merges_.find({left, right});
      if (merge == merges_.end() || merge->second != id)
        refuse("no merge forms " + in_quotes(std::string(piece)) + " from " +
               in_quotes(std::string(piece.substr(0, at))) + " and " + in_quotes(std::string(piece.substr(at))));
    }
  }

  const TokenizerData& data_;
  std::unordered_map<std::string_view, std::int32_t> pieces_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> merges_;
  std::vector<std::int32_t> groups_;  // [size]; -1: no merge
};

}  // namespace

std::vector<float> scores_of_merges(const TokenizerData& data) {
  if (data.ignore_merges) throw std::invalid_argument("[gguf] GGUF cannot store ignore_merges of character-level BPE");
  if (data.split_spaces)
    throw std::invalid_argument("[gguf] GGUF cannot store character-level BPE that splits at spaces");
  if (data.add_prefix_space && data.space_prefix != SpacePrefix::each_part)
    throw std::invalid_argument(
        "[gguf] GGUF cannot store that a space is prepended only to the first part of a text, or not "
        "before another space");
  return Scores(data).scores();
}

}  // namespace qkv
