// SPDX-License-Identifier: Apache-2.0
// Progress and configuration of a run: the state in checkpoint.json.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "qkv/train_config.h"

namespace qkv {

// Together with weights, optimizer state and configuration, everything the next step depends on.
struct RunState {
  std::int64_t step = 0;           // completed steps, including skipped ones
  std::int64_t updates = 0;        // optimizer steps
  std::int64_t next_sequence = 0;  // index of the first sequence of the next step
  std::int64_t tokens = 0;         // targets trained on so far, excluding padding
  std::int64_t evaluated_step = 0;
  std::int64_t best_step = 0;
  double best_loss = std::numeric_limits<double>::infinity();
  std::vector<double> recent_losses;  // newest losses, oldest first (loss_spike.h)
  std::uint64_t data_checksum = 0;    // of the training tokens; 0: unknown
};

struct SavedRun {
  RunState state;
  TrainConfig config;
};

std::string run_state_text(const RunState& state, const TrainConfig& config);
// Throws qkv::FileError, with `path`, for invalid text.
SavedRun parse_run_state(const std::string& path, const std::string& text);

}  // namespace qkv
