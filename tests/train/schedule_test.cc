// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "qkv/train.h"

namespace qkv {
namespace {

TrainConfig config(Schedule schedule) {
  TrainConfig c;
  c.steps = 110;
  c.learning_rate = 1.0;
  c.min_lr = 0.2;
  c.warmup_steps = 10;
  c.schedule = schedule;
  return c;
}

TEST(Schedule, WarmsUpInEqualSteps) {
  for (const Schedule schedule : {Schedule::cosine, Schedule::linear, Schedule::wsd, Schedule::constant}) {
    EXPECT_DOUBLE_EQ(learning_rate_at(config(schedule), 1), 1.0 / 11);
    EXPECT_DOUBLE_EQ(learning_rate_at(config(schedule), 10), 10.0 / 11);
    EXPECT_DOUBLE_EQ(
        learning_rate_at(config(schedule), 11),
        schedule == Schedule::cosine || schedule == Schedule::linear ? learning_rate_at(config(schedule), 11) : 1.0);
  }
}

TEST(Schedule, CosineIsHalfwayDownInTheMiddle) {
  const TrainConfig c = config(Schedule::cosine);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 60), 0.6);
  EXPECT_NEAR(learning_rate_at(c, 35), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 110), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 1000), 0.2);
}

TEST(Schedule, LinearFallsEvenly) {
  const TrainConfig c = config(Schedule::linear);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 35), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 60), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 85), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 110), 0.2);
}

TEST(Schedule, WsdFallsInTheLastFifth) {
  const TrainConfig c = config(Schedule::wsd);  // the last 22 of 110 steps
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 60), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 88), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 99), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 110), 0.2);
}

TEST(Schedule, ConstantStays) { EXPECT_DOUBLE_EQ(learning_rate_at(config(Schedule::constant), 110), 1.0); }

TEST(Schedule, EndsAtTheGivenStep) {
  TrainConfig c = config(Schedule::cosine);
  c.steps = 500;
  c.decay_steps = 110;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 60), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 111), 0.2);
}

TEST(Schedule, DerivesMissingValues) {
  TrainConfig c = config(Schedule::cosine);
  c.steps = 100;
  c.min_lr = -1;
  c.warmup_steps = -1;  // 5
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 5), 5.0 / 6);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 100), 0.1);
  c.steps = 1'000'000;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 500), 500.0 / 501);
}

TEST(Schedule, ARunOfOneStepLearns) {
  TrainConfig c;
  c.steps = 1;
  c.schedule = Schedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 1), c.learning_rate);
}

TEST(Schedule, WarmUpLongerThanTheRunOnlyWarmsUp) {
  TrainConfig c = config(Schedule::linear);
  c.warmup_steps = 400;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 110), 110.0 / 401);
}

TEST(Schedule, NamesRoundTrip) {
  for (const char* name : {"cosine", "linear", "wsd", "constant"}) EXPECT_EQ(to_string(schedule_from(name)), name);
  EXPECT_THROW(schedule_from("Cosine"), std::invalid_argument);
}

// The highest rate from `step` on, by searching all steps.
double highest_by_search(const TrainConfig& c, std::int64_t step) {
  double highest = 0;
  for (std::int64_t i = step; i <= c.steps; ++i) highest = std::max(highest, learning_rate_at(c, i));
  return highest;
}

TEST(Schedule, HighestRateMatchesASearch) {
  for (const Schedule schedule : {Schedule::cosine, Schedule::linear, Schedule::wsd, Schedule::constant}) {
    for (const std::int64_t warmup : {0, 1, 10, 200}) {
      for (const std::int64_t decay : {0, 50, 500}) {
        TrainConfig c = config(schedule);
        c.warmup_steps = warmup;
        c.decay_steps = decay;
        for (std::int64_t step = 1; step <= c.steps; ++step)
          EXPECT_EQ(highest_rate_from(c, step), highest_by_search(c, step)) << to_string(schedule) << warmup << step;
      }
    }
  }
}

TEST(Schedule, NeverRisesAboveThePeak) {
  TrainConfig c = config(Schedule::cosine);
  c.min_lr = 10;  // validate() refuses it, but a run of an older version may have it
  for (std::int64_t step = 1; step <= c.steps; ++step) EXPECT_LE(learning_rate_at(c, step), 1.0) << step;
}

// Resumes a run of 100 steps after any number of them, with any new number of steps: no later step exceeds the highest
// rate that was still planned.
TEST(Schedule, MoreStepsNeverRaiseTheRateOfAResumedRun) {
  for (const Schedule schedule : {Schedule::cosine, Schedule::linear, Schedule::wsd, Schedule::constant}) {
    for (const std::int64_t warmup : {-1, 0, 20}) {
      for (const std::int64_t decay : {0, 60, 400}) {
        TrainConfig planned = config(schedule);
        planned.steps = 100;
        planned.warmup_steps = warmup;
        planned.decay_steps = decay;
        for (std::int64_t done = 0; done <= planned.steps; done += 5) {
          for (const std::int64_t steps : {20, 40, 100, 101, 140, 1000, 20000}) {
            if (steps < done) continue;
            TrainConfig longer = planned;
            longer.steps = steps;
            keep_planned_schedule(planned, done, longer);
            EXPECT_FALSE(rate_rises(planned, done, longer));
            const double before = highest_by_search(planned, std::max<std::int64_t>(1, done));
            EXPECT_LE(highest_by_search(longer, done + 1), before * (1 + 1e-12))
                << to_string(schedule) << " warm-up " << warmup << ", " << done << " done, now " << steps;
          }
        }
      }
    }
  }
}

TEST(Schedule, MoreStepsStretchWhatDoesNotRise) {
  TrainConfig planned = config(Schedule::wsd), longer = planned;
  longer.steps = 400;
  EXPECT_FALSE(keep_planned_schedule(planned, 50, longer));  // still at the peak: the decay starts later
  EXPECT_DOUBLE_EQ(learning_rate_at(longer, 300), 1.0);
  planned.schedule = longer.schedule = Schedule::cosine;
  EXPECT_TRUE(keep_planned_schedule(planned, 110, longer));
  EXPECT_DOUBLE_EQ(learning_rate_at(longer, 111), 0.2);
  longer = planned;
  longer.learning_rate = 2;  // requested, not caused by the number of steps
  EXPECT_FALSE(keep_planned_schedule(planned, 50, longer));
  EXPECT_TRUE(rate_rises(planned, 50, longer));
}

TEST(TrainConfig, RefusesInvalidValues) {
  const auto refused = [](auto change, const char* name) {
    TrainConfig c;
    change(c);
    try {
      validate(c);
      return false;
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()).find(name) != std::string::npos;
    }
  };
  EXPECT_TRUE(refused([](TrainConfig& c) { c.steps = 0; }, "steps"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.batch_size = 0; }, "batch_size"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.batch_size = std::int64_t{1} << 62, c.grad_accum = 4; }, "batch_size"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.learning_rate = -1; }, "learning_rate"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.learning_rate = std::nan(""); }, "learning_rate"));
  EXPECT_TRUE(
      refused([](TrainConfig& c) { c.learning_rate = std::numeric_limits<double>::infinity(); }, "learning_rate"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.min_lr = 0.1, c.learning_rate = 0.01; },
                      "min_lr must be at most the learning_rate, 0.01; found 0.1"));
  EXPECT_FALSE(refused([](TrainConfig& c) { c.min_lr = c.learning_rate = 0.01; }, ""));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.beta1 = 1; }, "beta1"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.beta2 = -0.1; }, "beta2"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.eps = 0; }, "eps"));
  EXPECT_TRUE(refused([](TrainConfig& c) { c.log_interval = 0; }, "log_interval"));
  EXPECT_NO_THROW(validate(TrainConfig{}));
}

}  // namespace
}  // namespace qkv
