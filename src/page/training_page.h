// SPDX-License-Identifier: Apache-2.0
// The HTML report of a training run: one self-contained file, valid during the run (docs/training.md).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "page/series.h"

namespace qkv {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct PageFacts {
  std::string title;                                      // "Model"
  std::vector<std::pair<std::string, std::string>> rows;  // name, value
};

struct PageSample {
  std::int64_t step = 0;
  std::string text;
  bool repeats = false;  // the text is repetitive
};

// Text may be hostile; all of it is escaped.
struct TrainingPage {
  std::string title;    // the run's name
  std::string phase;    // "running", "finished", "stopped", "failed", or "" if unknown
  std::string message;  // reason of a failure etc.; may be empty
  std::int64_t step = 0, steps = 0;
  std::int64_t written = 0;  // seconds since 1970
  int refresh_seconds = 0;   // how often the page reloads itself; 0: never
  double seconds_done = kUnknown, seconds_left = kUnknown;

  // The values of the latest step; kUnknown if there are none.
  double loss = kUnknown, grad_norm = kUnknown, learning_rate = kUnknown, ms = kUnknown;
  double tokens_per_second = kUnknown, peak_fraction = kUnknown;
  // The best evaluation; step 0: none yet.
  std::int64_t best_step = 0;
  double best_loss = kUnknown, best_bits_per_byte = kUnknown;

  Series losses, validation_losses, bits_per_byte, learning_rates, grad_norms, speeds;
  std::vector<Marks> marks;
  std::vector<PageSample> samples;  // by ascending step
  std::int64_t samples_left_out = 0;
  std::vector<PageFacts> facts;
};

// The whole file in UTF-8. Its size does not grow with the number of steps.
std::string training_page(const TrainingPage& page);

}  // namespace qkv
