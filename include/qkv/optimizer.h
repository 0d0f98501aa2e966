// SPDX-License-Identifier: Apache-2.0
// Optimizers: update parameters from gradients. Created by name; checkpoints store each optimizer's state tensors under
// the names it gives them.
//
// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), with bias correction; t is the step:
//   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
//   p = p - lr * weight_decay * p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// Weight decay applies to parameters with ParameterInfo::decays. State: adamw.m.NAME and adamw.v.NAME.
//
// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024) for layer and adapter matrices;
// token and position embeddings, head, gains and biases use AdamW as above. W [in, out], its gradient G:
//   M = muon_momentum M + G            U = G + muon_momentum M         (Nesterov)
//   X = U / |U|_F, or its transpose if in > out, so that X has no more rows than columns; five times
//   X = a X + (b A + c A A) X          A = X X^T    a, b, c = 3.4445, -4.7750, 2.0315      (Newton-Schulz)
//   W = W - lr * weight_decay * W - lr * 0.2 sqrt(max(in, out)) X
// The last factor is from Liu et al., "Muon is scalable for LLM training", 2025: updates have about the same RMS as
// AdamW's, so that both share one learning rate and one weight decay. The reference implementation divides by |U|_F +
// 1e-7; here U = 0 gives X = 0. State: muon.m.NAME, and AdamW's for the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/model.h"
#include "qkv/tensor.h"

namespace qkv {

struct OptimizerOptions {
  std::string optimizer = "adamw";  // one of optimizer_names()
  double weight_decay = 0.1;        // matrices only
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double muon_momentum = 0.95;  // muon only

  bool operator==(const OptimizerOptions&) const = default;
};

std::vector<std::string> optimizer_names();

struct OptimizerStep {
  std::int64_t number = 1;  // from 1, counting only steps that were applied
  double learning_rate = 0;
  double gradient_scale = 1;  // factor of the gradients
};

struct OptimizerTensor {
  std::string name;  // in a checkpoint
  Tensor tensor;
};

// Memory that an optimizer needs for given parameters.
struct OptimizerPlan {
  struct State {
    std::string name;
    Dims shape;
  };
  std::vector<State> state;
  std::int64_t work = 0;          // elements of workspace, kept between steps
  std::int64_t elements() const;  // of state and work
};

// Steps are bit-identical at any thread count. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the parameters; gradients have the same order and shapes. Throws std::invalid_argument for a wrong number
  // of either.
  void update(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const OptimizerOptions& options,
              const OptimizerStep& step);

  std::vector<OptimizerTensor>& state() noexcept { return state_; }
  const std::vector<OptimizerTensor>& state() const noexcept { return state_; }

 protected:
  Optimizer(std::size_t parameters, const OptimizerPlan& plan, DType dtype);  // zero state

 private:
  virtual void apply(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                     const OptimizerOptions& options, const OptimizerStep& step) = 0;

  std::size_t parameters_;
  std::vector<OptimizerTensor> state_;
};

// For parameters of one element type, f32 or f64. Throws std::invalid_argument, listing the names.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<ParameterInfo>& parameters,
                                          DType dtype);
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const Model& model);
// Computes the memory without allocating it. Throws as make_optimizer does.
OptimizerPlan plan_optimizer(std::string_view name, const std::vector<ParameterInfo>& parameters);

// L2 norm of all tensors as one vector, summed in double in a fixed order. f32 or f64.
double global_norm(const std::vector<Tensor>& tensors);

}  // namespace qkv
