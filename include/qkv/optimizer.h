// SPDX-License-Identifier: Apache-2.0
// Optimizers: gradients in, changed parameters out. Made by name; each has tensors of its own, which checkpoints store
// under the names that it gives them.
//
// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), with bias correction; t is the step:
//   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
//   p = p - lr * weight_decay * p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// Weight decay applies where ParameterInfo::decays. State: adamw.m.NAME and adamw.v.NAME.
//
// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024) for the matrices of layers and
// of adapters; token and position embeddings, head, gains and biases have AdamW as above. W [in, out], its gradient G:
//   M = muon_momentum M + G            U = G + muon_momentum M         (Nesterov)
//   X = U / |U|_F, or its transpose where in > out, so that X has no more rows than columns; five times
//   X = a X + (b A + c A A) X          A = X X^T    a, b, c = 3.4445, -4.7750, 2.0315      (Newton-Schulz)
//   W = W - lr * weight_decay * W - lr * 0.2 sqrt(max(in, out)) X
// The last factor is that of Liu et al., "Muon is scalable for LLM training", 2025: the change has about the root mean
// square of one of AdamW's, so that one learning rate and one weight decay serve both. The reference implementation
// divides by |U|_F + 1e-7; here U = 0 gives X = 0. State: muon.m.NAME, and AdamW's for the rest.
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
  std::string optimizer = "adamw";  // of optimizer_names()
  double weight_decay = 0.1;        // matrices only
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double muon_momentum = 0.95;  // only muon has it

  bool operator==(const OptimizerOptions&) const = default;
};

std::vector<std::string> optimizer_names();

struct OptimizerStep {
  std::int64_t number = 1;  // from 1, counting the steps that changed something
  double learning_rate = 0;
  double gradient_scale = 1;  // gradients are multiplied by it
};

struct OptimizerTensor {
  std::string name;  // in a checkpoint
  Tensor tensor;
};

// What an optimizer of given parameters takes.
struct OptimizerPlan {
  struct State {
    std::string name;
    Dims shape;
  };
  std::vector<State> state;
  std::int64_t work = 0;          // elements that a step works in, kept between steps
  std::int64_t elements() const;  // of state and work
};

// Steps give the same bits at any thread count. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Changes the parameters; gradients are in the same order and of the same shapes. Throws std::invalid_argument for
  // another number of either.
  void update(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const OptimizerOptions& options,
              const OptimizerStep& step);

  std::vector<OptimizerTensor>& state() noexcept { return state_; }
  const std::vector<OptimizerTensor>& state() const noexcept { return state_; }

 protected:
  Optimizer(std::size_t parameters, const OptimizerPlan& plan, DType dtype);  // the state is zeros

 private:
  virtual void apply(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                     const OptimizerOptions& options, const OptimizerStep& step) = 0;

  std::size_t parameters_;
  std::vector<OptimizerTensor> state_;
};

// For parameters of one element type, f32 or f64. Throws std::invalid_argument that lists the names.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<ParameterInfo>& parameters,
                                          DType dtype);
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const Model& model);
// What it takes; nothing is taken. Throws as make_optimizer does.
OptimizerPlan plan_optimizer(std::string_view name, const std::vector<ParameterInfo>& parameters);

// The norm of all tensors as one vector, summed in double in a fixed order. f32 or f64.
double global_norm(const std::vector<Tensor>& tensors);

}  // namespace qkv
