// SPDX-License-Identifier: Apache-2.0
// Numbers along the steps of a run, in bounded memory: neighbours are put together as there come to be many, and the
// least and the greatest of what was put together are kept, so that a spike of one step in a million stays in sight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qkv {

// A function of the numbers and steps alone: however often it is looked at, however the run was cut, it is the same.
class Series {
 public:
  struct Bucket {
    std::int64_t first = 0, last = 0;  // steps
    double least = 0, greatest = 0, sum = 0;
    std::int64_t count = 0;
    double mean() const noexcept { return count > 0 ? sum / static_cast<double>(count) : 0; }
  };

  // Never more than `most` buckets (at least 2), and never fewer than half as many once there are that many numbers.
  explicit Series(std::size_t most = 2048) : most_(most < 2 ? 2 : most) {}

  // Steps come in order, from 0. A step before the last one and a value that is not finite are left out.
  void add(std::int64_t step, double value);

  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  std::int64_t width() const noexcept { return width_; }  // steps that share a bucket, a power of two

 private:
  void put_together();

  std::size_t most_;
  std::int64_t width_ = 1;
  std::vector<Bucket> buckets_;
};

// Events at steps, also in bounded memory: those of one kind that lie close together become one.
class Marks {
 public:
  struct Mark {
    std::int64_t first = 0, last = 0;  // steps
    std::int64_t count = 0;
    std::string text;  // what the first of them said; may be empty
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
