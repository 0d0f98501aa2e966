// SPDX-License-Identifier: Apache-2.0
// Values over the steps of a run, in bounded memory: adjacent steps are merged as the run grows, and each bucket keeps
// its minimum and maximum, so that a spike of one step in a million stays visible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qkv {

// Depends only on values and steps, not on when it is queried or where the run was interrupted.
class Series {
 public:
  struct Bucket {
    std::int64_t first = 0, last = 0;  // steps
    double least = 0, greatest = 0, sum = 0;
    std::int64_t count = 0;
    double mean() const noexcept { return count > 0 ? sum / static_cast<double>(count) : 0; }
  };

  // At most `most` buckets (at least 2), and at least half as many once there are that many values.
  explicit Series(std::size_t most = 2048) : most_(most < 2 ? 2 : most) {}

  // Steps must be in order, from 0. Earlier steps and non-finite values are ignored.
  void add(std::int64_t step, double value);

  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  std::int64_t width() const noexcept { return width_; }  // steps per bucket, a power of two

 private:
  void put_together();

  std::size_t most_;
  std::int64_t width_ = 1;
  std::vector<Bucket> buckets_;
};

// Events at steps, also in bounded memory: nearby events of the same kind are merged.
class Marks {
 public:
  struct Mark {
    std::int64_t first = 0, last = 0;  // steps
    std::int64_t count = 0;
    std::string text;  // text of the first event; may be empty
  };

  explicit Marks(std::string kind, std::size_t most = 256) : kind_(std::move(kind)), most_(most < 2 ? 2 : most) {}

  void add(std::int64_t step, const std::string& text = {});

  const std::string& kind() const noexcept { return kind_; }
  const std::vector<Mark>& marks() const noexcept { return marks_; }
  std::int64_t total() const noexcept { return total_; }

 private:
  void put_together();

  std::string kind_;
  std::size_t most_;
  std::int64_t width_ = 1, total_ = 0;
  std::vector<Mark> marks_;
};

}  // namespace qkv
