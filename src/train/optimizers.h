// SPDX-License-Identifier: Apache-2.0
// The optimizers described in qkv/optimizer.h, and their shared code. To add one: a class here, a source file, and an
// entry in the table in optimizer.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/optimizer.h"

namespace qkv {

inline constexpr std::int64_t kOptimizerRange = 64 * 1024;  // elements per task

// Sum of squares of up to kOptimizerRange elements, in double and in a fixed order.
double sum_of_squares(const float* x, std::int64_t count) noexcept;
double sum_of_squares(const double* x, std::int64_t count) noexcept;

// AdamW for a subset of an optimizer's parameters.
class AdamWGroup {
 public:
  // chosen[i]: index of a parameter
  AdamWGroup(const std::vector<ParameterInfo>& parameters, const std::vector<std::size_t>& chosen);
  void plan(OptimizerPlan& plan) const;  // adds first moments, then second moments
  // own: the tensors added by plan()
  void update(std::span<OptimizerTensor> own, std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
              const OptimizerOptions& options, const OptimizerStep& step) const;

 private:
  struct Member {
    std::size_t parameter;
    ParameterInfo info;
  };
  struct Range {  // elements [begin, end) of a member
    std::size_t member;
    std::int64_t begin, end;
  };
  std::vector<Member> members_;
  std::vector<Range> ranges_;
};

class AdamW final : public Optimizer {
 public:
  AdamW(const std::vector<ParameterInfo>& parameters, DType dtype);
  static OptimizerPlan plan(const std::vector<ParameterInfo>& parameters);

 private:
  void apply(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const OptimizerOptions& options,
             const OptimizerStep& step) override;

  AdamWGroup all_;
};

class Muon final : public Optimizer {
 public:
  Muon(const std::vector<ParameterInfo>& parameters, DType dtype);
  static OptimizerPlan plan(const std::vector<ParameterInfo>& parameters);

 private:
  void apply(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const OptimizerOptions& options,
             const OptimizerStep& step) override;

  struct Matrix {
    std::size_t parameter;
    bool decays;
  };
  std::vector<Matrix> matrices_;
  AdamWGroup rest_;
  Tensor work_;
};

}  // namespace qkv
