// SPDX-License-Identifier: Apache-2.0
#include "train_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "output.h"

namespace qkv::cli {
namespace {

constexpr int kWidth = 30;  // characters of the bar

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(0.0, std::min(seconds, 1e9))));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(std::string what, double already_done, bool lines)
    : what_(std::move(what)), already_done_(already_done), lines_(lines), terminal_(error_is_terminal()) {}

double Progress::seconds() const { return seconds_between(start_, Clock::now()); }

double Progress::seconds_left(double done, double total) const {
  return done > already_done_ ? seconds() * (total - done) / (done - already_done_) : 0;
}

void Progress::update(double done, double total) {
  const auto now = Clock::now();
  if (!terminal_ && !lines_) return;
  if (seconds_between(last_, now) < (terminal_ ? 0.1 : 3.0) && (shown_ || !terminal_)) return;
  last_ = now;
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 1.0;
  const std::string left = duration_text(seconds_left(done, total));
  if (!terminal_) {
    print_error(fmt::format("{}: {:.0f} %, {} left\n", what_, std::floor(share * 100), left));
    return;
  }
  const int full = static_cast<int>(share * kWidth);
  print_error(fmt::format("\r\x1b[K{} [{:#<{}}{:.<{}}] {:3.0f} %  {} left", what_, "", full, "", kWidth - full,
                          std::floor(share * 100), left));
  shown_ = true;
}

void Progress::hide() noexcept {
  if (shown_) print_error("\r\x1b[K");
  shown_ = false;
}

}  // namespace qkv::cli
