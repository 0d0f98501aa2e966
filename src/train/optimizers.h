// SPDX-License-Identifier: Apache-2.0
// The optimizers that qkv/optimizer.h describes, and what they share. A new one is a class here, a file, and a line of
// the table in optimizer.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/optimizer.h"

namespace qkv {

inline constexpr std::int64_t kOptimizerRange = 64 * 1024;  // elements that one task works on

// The squares of up to kOptimizerRange elements, summed in double in a fixed order.
double sum_of_squares(const float* x, std::int64_t count) noexcept;
double sum_of_squares(const double* x, std::int64_t count) noexcept;

// AdamW for some of the parameters that an optimizer trains.
class AdamWGroup {
 public:
  // chosen[i]: number of a parameter
  AdamWGroup(const std::vector<ParameterInfo>& parameters, const std::vector<std::size_t>& chosen);
  void plan(OptimizerPlan& plan) const;  // adds the first moments, then the second ones
  // own: the tensors that plan() added
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
