// SPDX-License-Identifier: Apache-2.0
// Where a run is and how it was asked to run, as the state in checkpoint.json.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "qkv/train_config.h"

namespace qkv {

// With weights, the optimizer's state and the configuration it is all that the next step depends on.
struct RunState {
  std::int64_t step = 0;           // steps done, skipped ones included
  std::int64_t updates = 0;        // the optimizer's steps
  std::int64_t next_sequence = 0;  // number of the first sequence of the next step
  std::int64_t tokens = 0;         // real targets trained on so far
  std::int64_t evaluated_step = 0;
  std::int64_t best_step = 0;
  double best_loss = std::numeric_limits<double>::infinity();
  std::vector<double> recent_losses;  // the newest ones, oldest first (loss_spike.h)
  std::uint64_t data_checksum = 0;    // of the tokens it goes through; 0: not known
};

struct SavedRun {
  RunState state;
  TrainConfig config;
};

std::string run_state_text(const RunState& state, const TrainConfig& config);
// Throws qkv::FileError, with `path`, for what is not such a text.
SavedRun parse_run_state(const std::string& path, const std::string& text);

}  // namespace qkv
