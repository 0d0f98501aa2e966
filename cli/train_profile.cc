// SPDX-License-Identifier: Apache-2.0
#include "train_profile.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace qkv::cli {
namespace {

std::vector<std::pair<std::string, double>> parts_of(const TrainProfile& p) {
  std::vector<std::pair<std::string, double>> parts{{"attention", p.model.attention},
                                                    {"projections", p.model.projections},
                                                    {"mlp", p.model.mlp},
                                                    {"norms", p.model.norms},
                                                    {"head_and_loss", p.model.head},
                                                    {"embedding", p.model.embedding},
                                                    {"optimizer", p.optimizer},
                                                    {"data", p.data}};
  double known = 0;
  for (const auto& part : parts) known += part.second;
  parts.emplace_back("other", std::max(0.0, p.seconds - known));  // weight conversion, loss sums
  return parts;
}

double milliseconds_a_step(const TrainProfile& p, double seconds) {
  return p.steps ? 1e3 * seconds / static_cast<double>(p.steps) : 0;
}

}  // namespace

void TrainProfile::add(const StepReport& report) {
  optimizer += report.optimizer_seconds;
  data += report.data_seconds;
  seconds += report.seconds;
  tokens += report.tokens;
  ++steps;
}

std::string profile_table(const TrainProfile& profile) {
  std::string text = fmt::format("{:<14} {:>10}  {:>6}\n", "", "ms/step", "share");
  for (const auto& [name, seconds] : parts_of(profile))
    text += fmt::format("{:<14} {:>10.2f}  {:>5.1f} %\n", name, milliseconds_a_step(profile, seconds),
                        profile.seconds > 0 ? 100 * seconds / profile.seconds : 0.0);
  return text + fmt::format("{:<14} {:>10.2f}\n", "step", milliseconds_a_step(profile, profile.seconds));
}

nlohmann::ordered_json profile_json(const TrainProfile& profile) {
  nlohmann::ordered_json json;
  for (const auto& [name, seconds] : parts_of(profile)) json[name] = milliseconds_a_step(profile, seconds);
  return json;
}

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace qkv::cli
