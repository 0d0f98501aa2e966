// SPDX-License-Identifier: Apache-2.0
// The parameters of a model: their names, shapes, roles and order, settled once in parameters.cc.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "qkv/model_config.h"

namespace qkv {

// Where each parameter is in the flat order.
class ParameterTable {
 public:
  ParameterTable() = default;
  explicit ParameterTable(const ModelConfig& config);  // resolved

  const std::vector<ParameterInfo>& infos() const noexcept { return infos_; }
  // The number of the parameter of a role (of a layer, or -1: of the model); -1 if the configuration has none.
  int find(ParameterRole role, std::int64_t layer = -1) const noexcept {
    return at_[static_cast<std::size_t>(layer + 1)][static_cast<std::size_t>(role)];
  }

 private:
  using Numbers = std::array<int, static_cast<std::size_t>(ParameterRole::head) + 1>;
  std::vector<ParameterInfo> infos_;
  std::vector<Numbers> at_;  // [1 + n_layer]: the model's, then each layer's
};

// Throws std::invalid_argument, beginning with [where], unless there is one tensor of `dtype` for each parameter.
void check_tensors(const std::vector<ParameterInfo>& infos, const std::vector<Tensor>& tensors, DType dtype,
                   const char* where);

// Random parameters from the seed; see Model::Model.
std::vector<Tensor> initial_parameters(const ModelConfig& config, std::uint64_t seed, DType dtype);

}  // namespace qkv
