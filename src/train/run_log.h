// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl as it grows, for the run's report. Memory does not grow with the number of steps.
#pragma once

#include <sys/types.h>
#include <cstdint>
#include <string>
#include <string_view>

#include "page/training_page.h"

namespace qkv {

class RunLog {
 public:
  explicit RunLog(std::string path) : path_(std::move(path)) { clear(); }

  // Reads lines appended since the last call, or the whole file if it was truncated or replaced. A missing file counts
  // as empty. An incomplete last line is read later; a line that is not an object with a step is skipped and counted.
  // Throws qkv::FileError if the file cannot be read.
  void read_new_lines();

  // Numbers, marks and samples; all other members are unchanged.
  const TrainingPage& page() const noexcept { return page_; }
  std::int64_t unreadable_lines() const noexcept { return unreadable_; }
  double recent_ms() const noexcept { return recent_ms_; }  // per step, mean of the newest; 0: none yet

 private:
  void clear();
  void add_line(std::string_view line);
  void add_sample(std::int64_t step, std::string text, bool repeats);

  std::string path_;
  std::int64_t offset_ = 0;  // bytes read so far
  ino_t inode_ = 0;
  std::int64_t unreadable_ = 0;
  double recent_ms_ = 0;
  std::size_t sample_bytes_ = 0;
  TrainingPage page_;
};

}  // namespace qkv
