// SPDX-License-Identifier: Apache-2.0
// Where a run stands and how it was asked to run, as the state in checkpoint.json.
#pragma once

#include <string>

#include "train/trainer_impl.h"

namespace qkv {

struct SavedRun {
  RunState state;
  TrainConfig config;
};

std::string run_state_text(const RunState& state, const TrainConfig& config);
// Throws qkv::FileError, with `path`, for what is not such a text.
SavedRun parse_run_state(const std::string& path, const std::string& text);

}  // namespace qkv
