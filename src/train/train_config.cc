// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules, and validation of training configurations.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <sstream>

#include "core/number_text.h"
#include "qkv/train_config.h"

namespace qkv {
namespace {

constexpr std::array<std::pair<std::string_view, Schedule>, 4> kSchedules{{{"cosine", Schedule::cosine},
                                                                           {"linear", Schedule::linear},
                                                                           {"wsd", Schedule::wsd},
                                                                           {"constant", Schedule::constant}}};

[[noreturn]] void refuse(const char* name, const char* expected, double found) {
  std::ostringstream text;
  text << "[train] " << name << " must be " << expected << "; found " << found;
  throw std::invalid_argument(text.str());
}

std::int64_t end_of(const TrainConfig& c) { return c.decay_steps > 0 ? c.decay_steps : c.steps; }
std::int64_t warmup_of(const TrainConfig& c) {
  return c.warmup_steps >= 0 ? c.warmup_steps : std::min<std::int64_t>(500, c.steps / 20);
}

}  // namespace

std::string_view to_string(Schedule schedule) noexcept {
  for (const auto& [name, value] : kSchedules) {
    if (value == schedule) return name;
  }
  return "";
}

Schedule schedule_from(std::string_view name) {
  for (const auto& [known, value] : kSchedules) {
    if (known == name) return value;
  }
  throw std::invalid_argument("[train] expected a schedule of cosine, linear, wsd or constant; found '" +
                              std::string(name) + "'");
}

void validate(const TrainConfig& c) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least, const char* expected) {
    if (value < least) refuse(name, expected, static_cast<double>(value));
  };
  const auto number = [](const char* name, double value, bool fits, const char* expected) {
    if (!fits || !std::isfinite(value)) refuse(name, expected, value);
  };
  at_least("steps", c.steps, 1, "at least 1");
  at_least("batch_size", c.batch_size, 1, "at least 1");
  at_least("grad_accum", c.grad_accum, 1, "at least 1");
  at_least("warmup_steps", c.warmup_steps, -1, "at least 0 (or -1 to derive it)");
  at_least("decay_steps", c.decay_steps, 0, "at least 0");
  at_least("eval_interval", c.eval_interval, 0, "at least 0");
  at_least("eval_iters", c.eval_iters, 0, "at least 0");
  at_least("sample_interval", c.sample_interval, 0, "at least 0");
  at_least("log_interval", c.log_interval, 1, "at least 1");
  at_least("checkpoint_interval", c.checkpoint_interval, 0, "at least 0");
  at_least("keep_checkpoints", c.keep_checkpoints, 1, "at least 1");
  at_least("max_bad_steps", c.max_bad_steps, 1, "at least 1");
  at_least("window", c.window, 0, "at least 0");
  if (c.batch_size > (std::int64_t{1} << 40) / c.grad_accum) {
    refuse("batch_size * grad_accum", "at most 2^40", static_cast<double>(c.batch_size));
  }
  number("learning_rate", c.learning_rate, c.learning_rate >= 0, "a finite number of at least 0");
  number("min_lr", c.min_lr, c.min_lr >= 0 || c.min_lr == -1, "a finite number of at least 0 (or -1 to derive it)");
  if (c.min_lr > c.learning_rate)
    refuse("min_lr", ("at most the learning_rate, " + number_text(c.learning_rate)).c_str(), c.min_lr);
  if (c.compute_dtype != DType::f32 && c.compute_dtype != DType::bf16)
    throw std::invalid_argument("[train] compute_dtype expected f32 or bf16; found " +
                                std::string(dtype_name(c.compute_dtype)));
  number("dropout", c.dropout, c.dropout >= 0 && c.dropout < 1, "from 0 to below 1");
  plan_optimizer(c.optimizer, {});  // throws for an unknown name
  number("muon_momentum", c.muon_momentum, c.muon_momentum >= 0 && c.muon_momentum < 1, "at least 0 and below 1");
  if (c.optimizer != "muon" && c.muon_momentum != OptimizerOptions{}.muon_momentum)
    throw std::invalid_argument("[train] muon_momentum expected the optimizer muon; found " + c.optimizer);
  number("weight_decay", c.weight_decay, c.weight_decay >= 0, "a finite number of at least 0");
  number("beta1", c.beta1, c.beta1 >= 0 && c.beta1 < 1, "at least 0 and below 1");
  number("beta2", c.beta2, c.beta2 >= 0 && c.beta2 < 1, "at least 0 and below 1");
  number("eps", c.eps, c.eps > 0, "a finite number above 0");
  number("grad_clip", c.grad_clip, c.grad_clip >= 0, "a finite number of at least 0");
}

double learning_rate_at(const TrainConfig& c, std::int64_t step) {
  const std::int64_t end = end_of(c), warmup = warmup_of(c);
  const double high = c.learning_rate;
  const double low = c.min_lr >= 0 ? std::min(c.min_lr, high) : high / 10;
  if (step <= warmup) return high * static_cast<double>(step) / static_cast<double>(warmup + 1);
  if (c.schedule == Schedule::constant) return high;
  // Completed share of [first, end].
  const std::int64_t first = c.schedule == Schedule::wsd ? std::max(warmup, end - end / 5) : warmup;
  if (step >= end) return low;
  if (step <= first) return high;
  const double t = static_cast<double>(step - first) / static_cast<double>(end - first);
  if (c.schedule == Schedule::cosine) return low + (high - low) * (1 + std::cos(std::numbers::pi * t)) / 2;
  return high + (low - high) * t;
}

// The rate rises up to the first step after the warm-up and never again.
double highest_rate_from(const TrainConfig& c, std::int64_t step) {
  const std::int64_t top = std::max(step, std::min(warmup_of(c), c.steps));
  return std::max({learning_rate_at(c, step), learning_rate_at(c, top), learning_rate_at(c, std::min(top + 1, c.steps))});
}

bool rate_rises(const TrainConfig& planned, std::int64_t steps_done, const TrainConfig& config) {
  constexpr double kRounding = 1e-12;
  const double before = highest_rate_from(planned, std::max<std::int64_t>(1, steps_done));
  return steps_done < config.steps && highest_rate_from(config, steps_done + 1) > before * (1 + kRounding);
}

bool keep_planned_schedule(const TrainConfig& planned, std::int64_t steps_done, TrainConfig& config) {
  TrainConfig longer = planned;
  longer.steps = config.steps;
  if (config.decay_steps != planned.decay_steps || !rate_rises(planned, steps_done, longer)) return false;
  config.decay_steps = end_of(planned);
  if (config.warmup_steps < 0) config.warmup_steps = warmup_of(planned);
  return true;
}

}  // namespace qkv
