// SPDX-License-Identifier: Apache-2.0
// A run that trains adapters (qkv/lora.h): the model computes with W0 + scale * A^T B^T, made anew after each step, and
// the gradients of those matrices become those of A and B.
#pragma once

#include <vector>

#include "qkv/lora.h"
#include "qkv/model.h"

namespace qkv {

// [i] of LoraAdapters::values[i].
std::vector<ParameterInfo> adapter_infos(const LoraAdapters& adapters);
// Which of a model's parameters the adapters change.
std::vector<bool> adapted_parameters(const LoraAdapters& adapters, std::size_t parameters);

class LoraTraining {
 public:
  // Keeps the matrices that the adapters change, and changes them in the model. Throws std::invalid_argument if they do
  // not fit.
  LoraTraining(Model& model, LoraAdapters adapters);

  const LoraAdapters& adapters() const noexcept { return adapters_; }
  std::vector<Tensor>& values() noexcept { return adapters_.values; }  // after a change: merge()
  void merge(Model& model) const;
  // Gradients of the model, [parameter], of which adapted_parameters() are needed, as those of values(); valid until
  // the next call.
  const std::vector<Tensor>& project(const std::vector<Tensor>& gradients);
  // The model as it was without adapters: the parameter itself, or what is kept of it.
  const Tensor& base(const Model& model, std::size_t parameter) const;

 private:
  LoraAdapters adapters_;
  std::vector<Tensor> base_;       // [parameter]; empty for those that stay
  std::vector<Tensor> gradients_;  // [i] as values()[i]
};

}  // namespace qkv
