// SPDX-License-Identifier: Apache-2.0
// Training time by operation, as a table and as JSON; used by qkv bench train and qkv train --profile.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "qkv/model.h"
#include "qkv/train.h"

namespace qkv::cli {

struct TrainProfile {
  ModelProfile model;  // seconds, summed over all steps
  double optimizer = 0, data = 0, seconds = 0;
  std::int64_t steps = 0, tokens = 0;

  void add(const StepReport& report);
};

// One line per operation: milliseconds per step and share.
std::string profile_table(const TrainProfile& profile);
// Milliseconds per step by operation.
nlohmann::ordered_json profile_json(const TrainProfile& profile);
// Peak memory of this process, in bytes.
std::int64_t peak_memory();

}  // namespace qkv::cli
