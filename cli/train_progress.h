// SPDX-License-Identifier: Apache-2.0
// Progress of long operations: a bar with the remaining time on a terminal, otherwise a line every few seconds.
#pragma once

#include <chrono>
#include <string>

namespace qkv::cli {

// "41 s", "12:05", "3:02:41".
std::string duration_text(double seconds);

// Not thread-safe. Prints to standard error.
class Progress {
 public:
  // lines: whether to print plain lines without a terminal.
  Progress(std::string what, double already_done, bool lines);
  ~Progress() { hide(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(double done, double total);
  void hide() noexcept;  // removes the bar until the next update, so that a line can be printed

  double seconds() const;                                // since the start
  double seconds_left(double done, double total) const;  // at the average speed so far

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  double already_done_;
  bool lines_, terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace qkv::cli
