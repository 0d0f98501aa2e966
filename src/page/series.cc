// SPDX-License-Identifier: Apache-2.0
#include "page/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace qkv {
namespace {

constexpr std::int64_t kWidest = std::numeric_limits<std::int64_t>::max() / 2;

// Doubles the width, merging items in the same bucket with `merge`, until there are at most `most`.
template <class Item, class Merge>
void merge_neighbours(std::vector<Item>& items, std::int64_t& width, std::size_t most, const Merge& merge) {
  while (items.size() > most && width < kWidest) {
    width *= 2;
    std::size_t kept = 0;
    for (std::size_t i = 1; i < items.size(); ++i) {
      if (items[kept].first / width == items[i].first / width) {
        merge(items[kept], items[i]);
      } else if (++kept != i) {
        items[kept] = std::move(items[i]);
      }
    }
    items.resize(kept + 1);
  }
}

void merge_buckets(Series::Bucket& a, const Series::Bucket& b) {
  a.last = b.last;
  a.least = std::min(a.least, b.least);
  a.greatest = std::max(a.greatest, b.greatest);
  a.sum += b.sum;
  a.count += b.count;
}

void merge_marks(Marks::Mark& a, const Marks::Mark& b) {
  a.last = b.last;
  a.count += b.count;
}

}  // namespace

void Series::add(std::int64_t step, double value) {
  if (!std::isfinite(value) || step < 0 || (!buckets_.empty() && step < buckets_.back().last)) return;
  const Bucket one{step, step, value, value, value, 1};
  if (!buckets_.empty() && buckets_.back().first / width_ == step / width_) return merge_buckets(buckets_.back(), one);
  buckets_.push_back(one);
  put_together();
}

void Series::put_together() { merge_neighbours(buckets_, width_, most_, merge_buckets); }

void Marks::add(std::int64_t step, const std::string& text) {
  if (step < 0 || (!marks_.empty() && step < marks_.back().last)) return;
  ++total_;
  const Mark one{step, step, 1, text};
  if (!marks_.empty() && marks_.back().first / width_ == step / width_) return merge_marks(marks_.back(), one);
  marks_.push_back(one);
  put_together();
}

void Marks::put_together() { merge_neighbours(marks_, width_, most_, merge_marks); }

}  // namespace qkv
