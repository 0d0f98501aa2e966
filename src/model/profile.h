// SPDX-License-Identifier: Apache-2.0
// Time per kind of work; see ModelProfile in qkv/model.h.
#pragma once

#include <chrono>

#include "qkv/model.h"

namespace qkv {

// Adds its lifetime to one part of a profile; does nothing without one.
class PartTimer {
 public:
  PartTimer(ModelProfile* profile, double ModelProfile::*part) : profile_(profile), part_(part) {
    if (profile_) start_ = std::chrono::steady_clock::now();
  }
  ~PartTimer() {
    if (profile_) profile_->*part_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  PartTimer(const PartTimer&) = delete;
  PartTimer& operator=(const PartTimer&) = delete;

 private:
  ModelProfile* profile_;
  double ModelProfile::*part_;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace qkv
