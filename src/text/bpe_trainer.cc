// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/bpe_encoder.h"
#include "text/splitter.h"

namespace qkv {
namespace {

// Token pairs and their positions, by key.
class PairTable {
 public:
  struct Pair {
    std::uint64_t key = 0;
    std::int64_t count = 0;
    std::vector<std::uint32_t> places;  // positions where its left symbol is or was
  };

  PairTable() : slots_(std::size_t{1} << 16, kFree) {}
  // A new pair has count 0. References are valid until the next call.
  Pair& operator[](std::uint64_t key) {
    std::size_t at = place(key);
    while (slots_[at] != kFree && pairs_[slots_[at]].key != key) at = (at + 1) & (slots_.size() - 1);
    if (slots_[at] != kFree) return pairs_[slots_[at]];
    slots_[at] = static_cast<std::uint32_t>(pairs_.size());
    pairs_.push_back({key, 0, {}});
    if (pairs_.size() * 2 > slots_.size()) grow();
    return pairs_.back();
  }

 private:
  static constexpr std::uint32_t kFree = 0xFFFFFFFF;

  std::size_t place(std::uint64_t key) const noexcept {
    const std::uint64_t mixed = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return (mixed ^ mixed >> 32) & (slots_.size() - 1);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, kFree);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      std::size_t at = place(pairs_[i].key);
      while (slots_[at] != kFree) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<std::uint32_t> slots_;  // open addressing; power-of-two size
  std::vector<Pair> pairs_;
};

// The distinct pieces of the text, concatenated, as a linked list of symbols in which pairs are replaced. Each symbol
// counts as often as its piece occurs.
class PairCounts {
 public:
  explicit PairCounts(const PieceCounts& pieces) {
    for (const auto& [piece, weight] : pieces.sorted()) add_piece(piece, weight);
    for (std::uint32_t at = 0; at < symbols_.size(); ++at)
      if (symbols_[at].after != kNone) change(at, 1);
    offer_changed();
  }

  // The pair to merge next, and its count; 0 if there is none.
  std::int64_t best(std::uint64_t& pair) {
    while (!queue_.empty()) {
      const Offer offer = queue_.top();
      const std::int64_t now = pairs_[offer.pair].count;
      if (offer.count == now) {
        pair = offer.pair;
        return now;
      }
      queue_.pop();
      // Pairs that became more frequent have been queued again; those that became rarer have not.
      if (now > 0 && now < offer.count) queue_.push({now, offer.pair});
    }
    return 0;
  }

  void merge(std::uint64_t pair, std::int32_t result) {
    const auto left = static_cast<std::int32_t>(pair >> 32), right = static_cast<std::int32_t>(pair);
    std::vector<std::uint32_t> places;
    places.swap(pairs_[pair].places);
    std::sort(places.begin(), places.end());  // "aaa" is (aa)a, not a(aa)
    for (const std::uint32_t at : places) {
      const std::uint32_t next = symbols_[at].after;
      if (symbols_[at].id != left || next == kNone || symbols_[next].id != right) continue;
      const std::uint32_t before = symbols_[at].before, after = symbols_[next].after;
      change(at, -1);
      if (before != kNone) change(before, -1);
      if (after != kNone) change(next, -1);
      symbols_[at].id = result;
      symbols_[at].after = after;
      symbols_[next].id = -1;
      symbols_[next].after = kNone;
      if (after != kNone) {
        symbols_[after].before = at;
        change(at, 1);
      }
      if (before != kNone) change(before, 1);
    }
    offer_changed();
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Symbol {
    std::int32_t id;
    std::uint32_t before, after, piece;
  };
  struct Offer {
    std::int64_t count;
    std::uint64_t pair;
    bool operator<(const Offer& other) const noexcept {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add_piece(std::string_view piece, std::int64_t weight) {
    if (piece.size() >= kNone - symbols_.size())
      throw std::invalid_argument("[train_bpe] expected at most 4 GiB of distinct pieces; found more");
    const auto first = static_cast<std::uint32_t>(symbols_.size()), n = static_cast<std::uint32_t>(piece.size());
    for (std::uint32_t i = 0; i < n; ++i)
      symbols_.push_back({static_cast<unsigned char>(piece[i]), i ? first + i - 1 : kNone,
                          i + 1 < n ? first + i + 1 : kNone, static_cast<std::uint32_t>(weights_.size())});
    weights_.push_back(weight);
  }

  // Increments (1) or decrements (-1) the count of the pair starting at a symbol.
  void change(std::uint32_t at, std::int64_t sign) {
    const Symbol& symbol = symbols_[at];
    const std::uint64_t key = pair_key(symbol.id, symbols_[symbol.after].id);
    PairTable::Pair& pair = pairs_[key];
    pair.count += sign * weights_[symbol.piece];
    if (sign < 0) return;
    pair.places.push_back(at);
    grown_.push_back(key);
  }

  void offer_changed() {
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const std::uint64_t key : grown_)
      if (const std::int64_t count = pairs_[key].count; count > 0) queue_.push({count, key});
    grown_.clear();
  }

  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> weights_;  // [pieces] occurrences of each
  PairTable pairs_;
  std::vector<std::uint64_t> grown_;  // pairs that may have become more frequent since the last offer_changed()
  std::priority_queue<Offer> queue_;
};

}  // namespace

TokenizerData byte_tokenizer_data() {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) data.tokens.emplace_back(1, static_cast<char>(byte));
  data.end_token = 256;
  data.tokens.emplace_back(kEndToken);
  data.added.push_back({.id = data.end_token, .content = std::string(kEndToken), .special = true});
  return data;
}

TokenizerData train_bpe_data(std::string_view text, std::int64_t size,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) {
  PieceCounts pieces;
  pieces.add_text(text);
  return train_bpe_data(pieces, size, progress);
}

TokenizerData train_bpe_data(const PieceCounts& pieces, std::int64_t size,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  TokenizerData data = byte_tokenizer_data();
  if (size < static_cast<std::int64_t>(data.tokens.size()) || size > kLargest)
    throw std::invalid_argument("[train_bpe] expected a size from 257 (bytes and the end token) to 2^30; found " +
                                std::to_string(size));
  data.patterns = {std::string(kGpt2Pattern)};
  PairCounts counts(pieces);
  std::unordered_map<std::string, std::int32_t> known;  // the end token's text is not an ordinary token
  for (std::int32_t byte = 0; byte < 256; ++byte) known.emplace(data.tokens[static_cast<std::size_t>(byte)], byte);
  const auto tokens = [&] { return static_cast<std::int64_t>(data.tokens.size()); };
  std::uint64_t pair = 0;
  while (tokens() < size && counts.best(pair) >= 2) {
    const auto left = static_cast<std::int32_t>(pair >> 32), right = static_cast<std::int32_t>(pair);
    const std::string joined =
        data.tokens[static_cast<std::size_t>(left)] + data.tokens[static_cast<std::size_t>(right)];
    const auto [found, is_new] = known.emplace(joined, static_cast<std::int32_t>(tokens()));
    const std::int32_t result = found->second;
    if (is_new) data.tokens.push_back(joined);
    data.merges.push_back({left, right, result});
    counts.merge(pair, result);
    if (progress && is_new && tokens() % 64 == 0) progress(tokens(), size);
  }
  if (progress) progress(tokens(), tokens());
  return data;
}

}  // namespace qkv
