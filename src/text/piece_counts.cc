// SPDX-License-Identifier: Apache-2.0
#include "text/piece_counts.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "text/splitter.h"

namespace qkv {
namespace {

std::uint64_t hash_of(std::string_view piece) noexcept {
  std::uint64_t hash = piece.size() * 0x9E3779B97F4A7C15u;
  while (!piece.empty()) {
    std::uint64_t eight = 0;
    const std::size_t count = std::min(piece.size(), sizeof eight);
    std::memcpy(&eight, piece.data(), count);
    hash = (hash ^ eight) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
    piece.remove_prefix(count);
  }
  return hash;
}

}  // namespace

void PieceCounts::add(std::string_view piece, std::int64_t count) { add_hashed(hash_of(piece), piece, count); }

void PieceCounts::add_hashed(std::uint64_t hash, std::string_view added, std::int64_t count) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at].count != 0; at = (at + 1) & mask) {
    if (slots_[at].hash != hash || piece(slots_[at]) != added) continue;
    slots_[at].count += count;
    return;
  }
  if (bytes_.size() + added.size() > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument("[train_bpe] expected at most 4 GiB of distinct pieces; found more");
  slots_[at] = {hash, count, static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(added.size())};
  bytes_ += added;
  if (++size_ * 2 > slots_.size()) grow();
}

void PieceCounts::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].count != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

void PieceCounts::add_text(std::string_view text) {
  static const Splitter splitter({std::string(kGpt2Pattern)});
  splitter.split(text, [&](std::string_view piece) { add(piece); });
}

void PieceCounts::merge(const PieceCounts& other) {
  for (const Slot& slot : other.slots_)
    if (slot.count != 0) add_hashed(slot.hash, other.piece(slot), slot.count);
  if (size_ > limits_.pieces || bytes_.size() > limits_.bytes) forget_the_rarest();
}

void PieceCounts::forget_the_rarest() {
  for (std::int64_t rare = 1; size_ > limits_.pieces / 2 || bytes_.size() > limits_.bytes / 2; rare *= 2) {
    PieceCounts kept(limits_);
    kept.forgotten_ = forgotten_;
    for (const Slot& slot : slots_) {
      if (slot.count > rare) kept.add_hashed(slot.hash, piece(slot), slot.count);
      kept.forgotten_ += slot.count > 0 && slot.count <= rare;
    }
    *this = std::move(kept);
  }
}

void PieceCounts::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  bytes_.clear();
  size_ = 0;
}

std::vector<std::pair<std::string_view, std::int64_t>> PieceCounts::sorted() const {
  std::vector<std::pair<std::string_view, std::int64_t>> all;
  all.reserve(size_);
  for (const Slot& slot : slots_)
    if (slot.count != 0) all.emplace_back(piece(slot), slot.count);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace qkv
