// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_encoder.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <set>
#include <stdexcept>

#include "text/utf8.h"

namespace qkv {
namespace {

constexpr std::size_t kShort = 40;  // bytes per piece

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[tokenizer] expected " + expected + "; found " + found);
}

// The symbols of a piece as a doubly linked list in arrays; a symbol merged into its left neighbour has id -1.
struct Symbol {
  std::int32_t id;
  std::int32_t before, after;  // -1: none
};

struct Candidate {
  std::int32_t rank, at, result;
  std::int32_t left, right;  // the ids when it was queued: stale if they have changed
  bool operator>(const Candidate& other) const noexcept {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

BpeEncoder::BpeEncoder(const TokenizerData& data) {
  std::set<std::int32_t> controls;
  for (const AddedToken& token : data.added)
    if (!token.in_model) controls.insert(token.id);
  byte_ids_.fill(-1);
  unknown_ = data.unknown_token;
  fuse_unknown_ = data.fuse_unknown;
  if (data.characters) {
    if (data.byte_ids.size() != byte_ids_.size())
      fail("a token for each of the 256 bytes", std::to_string(data.byte_ids.size()));
    std::copy(data.byte_ids.begin(), data.byte_ids.end(), byte_ids_.begin());
    controls.insert(data.byte_ids.begin(), data.byte_ids.end());
  }
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    if (controls.contains(static_cast<std::int32_t>(id))) continue;
    const std::string& token = data.tokens[id];
    if (data.characters && !token.empty() && utf8_step(token).length == token.size())
      characters_.emplace(token, static_cast<std::int32_t>(id));
    if (token.size() == 1 && !data.characters)
      byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<std::int32_t>(id);
    if (data.ignore_merges) whole_.emplace(token, static_cast<std::int32_t>(id));
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] < 0 && unknown_ < 0 && !data.drop_unknown_bytes)
      fail("a token for each of the 256 bytes", "none for byte " + std::to_string(byte));
  complete_ = !data.characters && *std::min_element(byte_ids_.begin(), byte_ids_.end()) >= 0;
  const auto size = static_cast<std::int32_t>(data.tokens.size());
  slots_.assign(std::bit_ceil(2 * data.merges.size() + 2), Slot{0, {kNoRank, -1}});
  for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
    const Merge& merge = data.merges[rank];
    for (const std::int32_t id : {merge.left, merge.right, merge.result})
      if (id < 0 || id >= size) fail("ids below " + std::to_string(size) + " in merges", std::to_string(id));
    const std::uint64_t pair = pair_key(merge.left, merge.right);
    Slot& place = const_cast<Slot&>(slot(pair));
    if (place.target.rank != kNoRank) fail("unique merges", "a duplicate, merge " + std::to_string(rank));
    place = {pair, {static_cast<std::int32_t>(rank), merge.result}};
    ++merge_count_;
  }
}

const BpeEncoder::Slot& BpeEncoder::slot(std::uint64_t pair) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t mixed = (pair ^ pair >> 32) * 0x9E3779B97F4A7C15u;
  std::size_t at = (mixed ^ mixed >> 32) & mask;
  while (slots_[at].target.rank != kNoRank && slots_[at].pair != pair) at = (at + 1) & mask;
  return slots_[at];
}

void BpeEncoder::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (!whole_.empty()) {
    if (const auto found = whole_.find(std::string(piece)); found != whole_.end()) return ids.push_back(found->second);
  }
  if (complete_ && piece.size() <= kShort) {
    std::array<std::int32_t, kShort> symbols;  // [piece.size()]
    for (std::size_t i = 0; i < piece.size(); ++i) symbols[i] = byte_id(piece[i]);
    return encode_short(std::span(symbols).first(piece.size()), ids);
  }
  if (piece.size() > std::size_t{1} << 30) fail("pieces of at most 1 GiB", std::to_string(piece.size()) + " bytes");
  const std::vector<std::int32_t> symbols = characters_.empty() ? known_symbols(piece) : character_symbols(piece);
  symbols.size() <= kShort ? encode_short(symbols, ids) : encode_long(symbols, ids);
}

std::vector<std::int32_t> BpeEncoder::known_symbols(std::string_view piece) const {
  std::vector<std::int32_t> symbols;
  symbols.reserve(piece.size());
  bool was_unknown = false;
  for (const char byte : piece) {
    const bool known = byte_id(byte) >= 0;
    if (known)
      symbols.push_back(byte_id(byte));
    else if (unknown_ >= 0 && !(fuse_unknown_ && was_unknown))
      symbols.push_back(unknown_);
    was_unknown = !known;
  }
  return symbols;
}

std::vector<std::int32_t> BpeEncoder::character_symbols(std::string_view piece) const {
  std::vector<std::int32_t> symbols;
  for (std::size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, utf8_step(piece.substr(at)).length);
    const auto found = characters_.find(character);
    if (found != characters_.end())
      symbols.push_back(found->second);
    else
      for (const char byte : character) symbols.push_back(byte_id(byte));
    at += character.size();
  }
  return symbols;
}

// The algorithm by definition: quadratic, but without a queue, and fastest for words.
void BpeEncoder::encode_short(std::span<const std::int32_t> from, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kShort> symbols;  // [n] ids
  std::array<Target, kShort> targets;        // [n - 1] merge result of the pair starting at each symbol
  std::size_t n = from.size();
  std::copy(from.begin(), from.end(), symbols.begin());
  for (std::size_t i = 0; i + 1 < n; ++i) targets[i] = target(symbols[i], symbols[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (targets[i].rank < targets[best].rank) best = i;
    if (targets[best].rank == kNoRank) break;
    symbols[best] = targets[best].result;
    --n;
    for (std::size_t i = best + 1; i < n; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = best; i + 1 < n; ++i) targets[i] = targets[i + 1];
    if (best + 1 < n) targets[best] = target(symbols[best], symbols[best + 1]);
    if (best > 0) targets[best - 1] = target(symbols[best - 1], symbols[best]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(n));
}

void BpeEncoder::encode_long(std::span<const std::int32_t> from, std::vector<std::int32_t>& ids) const {
  const auto n = static_cast<std::int32_t>(from.size());
  std::vector<Symbol> symbols(from.size());
  for (std::int32_t i = 0; i < n; ++i)
    symbols[static_cast<std::size_t>(i)] = {from[static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };

  std::vector<Candidate> storage;
  storage.reserve(from.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(), std::move(storage));
  const auto propose = [&](std::int32_t at) {
    if (at < 0 || symbol(at).after < 0) return;
    const std::int32_t left = symbol(at).id, right = symbol(symbol(at).after).id;
    const Target found = target(left, right);
    if (found.rank != kNoRank) queue.push({found.rank, at, found.result, left, right});
  };
  for (std::int32_t i = 0; i + 1 < n; ++i) propose(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (left.id != best.left || left.after < 0 || symbol(left.after).id != best.right) continue;
    Symbol& right = symbol(left.after);
    left.id = best.result;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = best.at;
    propose(best.at);
    propose(left.before);
  }
  for (std::int32_t i = n ? 0 : -1; i >= 0; i = symbol(i).after) ids.push_back(symbol(i).id);
}

}  // namespace qkv
