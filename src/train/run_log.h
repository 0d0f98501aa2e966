// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl as it grows, into what the page of the run shows. Memory does not grow with the number of steps.
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

  // Reads what the file has gained; all of it again where it was cut or replaced. No file is an empty one. A line
  // without its end is left for the next time, a line that is no object with a step is left out and counted. Throws
  // qkv::FileError for a file that cannot be read.
  void read_new_lines();

  // Numbers, marks and samples; all else as it was made.
  const TrainingPage& page() const noexcept { return page_; }
  std::int64_t unreadable_lines() const noexcept { return unreadable_; }
  double recent_ms() const noexcept { return recent_ms_; }  // a step, a mean over the newest; 0: none yet

 private:
  void clear();
  void add_line(std::string_view line);
  void add_sample(std::int64_t step, std::string text, bool repeats);

  std::string path_;
  std::int64_t offset_ = 0;  // bytes read
  ino_t inode_ = 0;
  std::int64_t unreadable_ = 0;
  double recent_ms_ = 0;
  std::size_t sample_bytes_ = 0;
  TrainingPage page_;
};

}  // namespace qkv
