// SPDX-License-Identifier: Apache-2.0
// What the processes of a run tell each other in a step. Process r of n has the lanes lanes_of(r, n) of every step
// (qkv/gradient_sum.h). All functions but rank() and size() are called by all processes, in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/gradient_sum.h"

namespace qkv {

// How much a step, or one process's share of it, is made of.
struct StepSize {
  std::int64_t sequences = 0;
  std::int64_t targets = 0;  // real ones
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;  // 1, 2, 4 or 8

  // The sum of all processes' shares, before the step starts.
  virtual StepSize total(const StepSize& own) = 0;
  // The losses of all processes' sequences, in the order of ranks, which is that of the step.
  virtual std::vector<double> gather(const std::vector<double>& own) = 0;
  // Adds up the partial sums of all processes, two subtrees at a time and where the tensors are, so that each process
  // has the sum over all lanes.
  virtual void reduce(GradientSum& sum) = 0;
};

class OneProcess final : public Communicator {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  StepSize total(const StepSize& own) override { return own; }
  std::vector<double> gather(const std::vector<double>& own) override { return own; }
  void reduce(GradientSum&) override {}  // it has all lanes
};

}  // namespace qkv
