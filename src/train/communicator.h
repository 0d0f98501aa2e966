// SPDX-License-Identifier: Apache-2.0
// Communication between the processes of a run in a step. Process r of n has the lanes lanes_of(r, n) of every step
// (qkv/gradient_sum.h). All functions except rank() and size() are collective: all processes call them in the same
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/gradient_sum.h"

namespace qkv {

// The size of a step, or of one process's share of it.
struct StepSize {
  std::int64_t sequences = 0;
  std::int64_t targets = 0;  // excluding padding
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;  // 1, 2, 4 or 8

  // The sum over all processes, before the step starts.
  virtual StepSize total(const StepSize& own) = 0;
  // The losses of all processes' sequences, in rank order, which is the step's order.
  virtual std::vector<double> gather(const std::vector<double>& own) = 0;
  // Adds the partial sums of all processes, two subtrees at a time and in place, so that each process has the sum over
  // all lanes.
  virtual void reduce(GradientSum& sum) = 0;
};

class OneProcess final : public Communicator {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  StepSize total(const StepSize& own) override { return own; }
  std::vector<double> gather(const std::vector<double>& own) override { return own; }
  void reduce(GradientSum&) override {}  // a single process has all lanes
};

}  // namespace qkv
