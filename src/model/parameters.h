// SPDX-License-Identifier: Apache-2.0
// The parameters of a model: names, shapes, roles and order, defined only in parameters.cc.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "qkv/model_config.h"

namespace qkv {

// Index of each parameter in flat order.
class ParameterTable {
 public:
  ParameterTable() = default;
  explicit ParameterTable(const ModelConfig& config);  // resolved

  const std::vector<ParameterInfo>& infos() const noexcept { return infos_; }
  // The index of the parameter with a role (in a layer; -1: not in a layer); -1 if the configuration does not have it.
  int find(ParameterRole role, std::int64_t layer = -1) const noexcept {
    return at_[static_cast<std::size_t>(layer + 1)][static_cast<std::size_t>(role)];
  }

 private:
  using Numbers = std::array<int, static_cast<std::size_t>(ParameterRole::head) + 1>;
  std::vector<ParameterInfo> infos_;
  std::vector<Numbers> at_;  // [1 + n_layer]: the model's, then each layer's
};

// Throws std::invalid_argument, prefixed with [where], unless there is one tensor of `dtype` for each parameter.
void check_tensors(const std::vector<ParameterInfo>& infos, const std::vector<Tensor>& tensors, DType dtype,
                   const char* where);

// Random parameters from a seed; see Model::Model.
std::vector<Tensor> initial_parameters(const ModelConfig& config, std::uint64_t seed, DType dtype);

}  // namespace qkv
