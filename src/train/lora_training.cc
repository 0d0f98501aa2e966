// SPDX-License-Identifier: Apache-2.0
#include "train/lora_training.h"

#include <utility>

#include "model/lora.h"

namespace qkv {

std::vector<ParameterInfo> adapter_infos(const LoraAdapters& adapters) {
  std::vector<ParameterInfo> infos;
  for (std::size_t i = 0; i < adapters.values.size(); ++i)
    infos.push_back({adapters.tensor_name(i), adapters.values[i].shape(), ParameterRole::adapter, -1});
  return infos;
}

std::vector<bool> adapted_parameters(const LoraAdapters& adapters, std::size_t parameters) {
  std::vector<bool> adapted(parameters);
  for (const LoraModule& module : adapters.modules)
    for (const std::size_t p : module.parameters) adapted.at(p) = true;
  return adapted;
}

LoraTraining::LoraTraining(Model& model, LoraAdapters adapters) : adapters_(std::move(adapters)) {
  std::vector<Tensor> base(model.infos().size());
  for (const LoraModule& module : adapters_.modules)
    for (const std::size_t p : module.parameters)
      if (p < base.size()) base[p] = std::as_const(model).parameters()[p];
  add_lora(model, adapters_);  // throws unless they fit
  base_ = std::move(base);
  for (const Tensor& value : adapters_.values) gradients_.emplace_back(value.shape(), value.dtype());
}

void LoraTraining::merge(Model& model) const {
  const Model::ParameterAccess parameters = model.change_parameters();
  for (std::size_t m = 0; m < adapters_.modules.size(); ++m) {
    std::vector<const Tensor*> base;
    std::vector<Tensor*> to;
    for (const std::size_t p : adapters_.modules[m].parameters) {
      base.push_back(&base_[p]);
      to.push_back(&parameters[p]);
    }
    merge_lora(adapters_, m, base, to);
  }
}

const std::vector<Tensor>& LoraTraining::project(const std::vector<Tensor>& gradients) {
  for (std::size_t m = 0; m < adapters_.modules.size(); ++m) {
    std::vector<const Tensor*> dw;
    for (const std::size_t p : adapters_.modules[m].parameters) dw.push_back(&gradients[p]);
    lora_gradients(adapters_, m, dw, gradients_[2 * m], gradients_[2 * m + 1]);
  }
  return gradients_;
}

const Tensor& LoraTraining::base(const Model& model, std::size_t parameter) const {
  return base_[parameter].raw() ? base_[parameter] : model.parameters()[parameter];
}

}  // namespace qkv
