// SPDX-License-Identifier: Apache-2.0
// Where the time of training goes, as a table and as JSON; shared by qkv bench train and qkv train --profile.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "qkv/model.h"
#include "qkv/train.h"

namespace qkv::cli {

struct TrainProfile {
  ModelProfile model;  // seconds, of all steps together
  double optimizer = 0, data = 0, seconds = 0;
  std::int64_t steps = 0, tokens = 0;

  void add(const StepReport& report);
};

// One line a kind of work: milliseconds a step and share.
std::string profile_table(const TrainProfile& profile);
// Milliseconds a step by kind of work.
nlohmann::ordered_json profile_json(const TrainProfile& profile);
// The most memory this process has had, in bytes.
std::int64_t peak_memory();

}  // namespace qkv::cli
