// SPDX-License-Identifier: Apache-2.0
#include "generate/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace qkv {
namespace {

bool begins_with(const Prefix& prefix, const Prefix& beginning) {
  return beginning.tokens.size() <= prefix.tokens.size() &&
         std::equal(beginning.tokens.begin(), beginning.tokens.end(), prefix.tokens.begin());
}

}  // namespace

std::int64_t Prefix::reusable(std::span<const std::int32_t> text, bool all) const noexcept {
  const auto size = static_cast<std::int64_t>(tokens.size()), length = static_cast<std::int64_t>(text.size());
  const std::int64_t most = std::min(all ? size : state.size(), length);
  const std::int64_t common = std::mismatch(text.begin(), text.begin() + most, tokens.begin()).first - text.begin();
  return common < length || (all ? size : logits_at) == length ? common : length - 1;
}

std::size_t Prefix::memory_bytes() const noexcept { return state.memory_bytes() + 4 * (tokens.size() + logits.size()); }

const Prefix* PrefixCache::find(std::span<const std::int32_t> text, std::int64_t& count) const noexcept {
  const Prefix* best = nullptr;
  for (const Prefix& prefix : prefixes_)
    if (const std::int64_t reusable = prefix.reusable(text); reusable > count) {
      count = reusable;
      best = &prefix;
    }
  return best;
}

ModelState PrefixCache::take(const Prefix* found, std::int64_t count) {
  const Entry entry =
      std::find_if(prefixes_.begin(), prefixes_.end(), [&](const Prefix& prefix) { return &prefix == found; });
  if (count < entry->state.size()) {
    prefixes_.splice(prefixes_.end(), prefixes_, entry);
    return entry->state.prefix(count);
  }
  bytes_ -= entry->memory_bytes();
  ModelState state = std::move(entry->state);
  prefixes_.erase(entry);
  return state;
}

void PrefixCache::add(Prefix prefix) {
  prefix.tokens.resize(static_cast<std::size_t>(prefix.state.size()));
  const std::size_t bytes = prefix.memory_bytes();
  if (prefix.tokens.empty() || bytes > limit_) return;
  for (Entry entry = prefixes_.begin(); entry != prefixes_.end();) {
    if (begins_with(*entry, prefix)) return prefixes_.splice(prefixes_.end(), prefixes_, entry);
    const Entry next = std::next(entry);
    if (begins_with(prefix, *entry)) erase(entry);
    entry = next;
  }
  while (bytes_ + bytes > limit_) erase(prefixes_.begin());
  bytes_ += bytes;
  prefixes_.push_back(std::move(prefix));
}

void PrefixCache::erase(Entry entry) {
  bytes_ -= entry->memory_bytes();
  prefixes_.erase(entry);
}

}  // namespace qkv
