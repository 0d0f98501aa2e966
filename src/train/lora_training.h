// SPDX-License-Identifier: Apache-2.0
// A run that trains adapters (qkv/lora.h): the model computes with W0 + scale * A^T B^T, merged again after each step,
// and the gradients of those matrices are projected to gradients of A and B.
#pragma once

#include <vector>

#include "qkv/lora.h"
#include "qkv/model.h"

namespace qkv {

// [i] corresponds to LoraAdapters::values[i].
std::vector<ParameterInfo> adapter_infos(const LoraAdapters& adapters);
// Which of a model's parameters are adapted.
std::vector<bool> adapted_parameters(const LoraAdapters& adapters, std::size_t parameters);

class LoraTraining {
 public:
  // Saves the adapted matrices and merges the adapters into the model. Throws std::invalid_argument if they do not fit.
  LoraTraining(Model& model, LoraAdapters adapters);

  const LoraAdapters& adapters() const noexcept { return adapters_; }
  std::vector<Tensor>& values() noexcept { return adapters_.values; }  // call merge() after a change
  void merge(Model& model) const;
  // Converts gradients of the model, [parameter], of which only adapted_parameters() are used, to gradients of
  // values(); valid until the next call.
  const std::vector<Tensor>& project(const std::vector<Tensor>& gradients);
  // The original parameter without adapters: the model's own, or the saved copy.
  const Tensor& base(const Model& model, std::size_t parameter) const;

 private:
  LoraAdapters adapters_;
  std::vector<Tensor> base_;       // [parameter]; empty if not adapted
  std::vector<Tensor> gradients_;  // [i] like values()[i]
};

}  // namespace qkv
