// SPDX-License-Identifier: Apache-2.0
// How far long work is: a bar with the time left on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace qkv::cli {

// "41 s", "12:05", "3:02:41".
std::string duration_text(double seconds);

// One thread at a time. Everything goes to standard error.
class Progress {
 public:
  // lines: whether to write plain lines where there is no terminal.
  Progress(std::string what, double already_done, bool lines);
  ~Progress() { hide(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(double done, double total);
  void hide() noexcept;  // takes the bar away until the next update, so that a line can be written

  double seconds() const;                                // since the start
  double seconds_left(double done, double total) const;  // at the speed so far

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  double already_done_;
  bool lines_, terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace qkv::cli
