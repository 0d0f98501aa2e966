// SPDX-License-Identifier: Apache-2.0
#include "model/network_parameters.h"

#include <stdexcept>

namespace qkv {

template <class T, class Tensors>
ModelParameters<T*> by_role(const ModelConfig& c, Tensors& tensors, const char* where) {
  ModelParameters<T*> roles;
  std::size_t i = 0;
  const std::string prefix = std::string("[") + where + "] ";
  visit_parameters(c, roles, [&](const std::string& name, const Dims& shape, bool, T*& slot) {
    if (i >= tensors.size())
      throw std::invalid_argument(prefix + "expected a tensor for " + name + "; found only " +
                                  std::to_string(tensors.size()) + " tensors");
    auto& tensor = tensors[i++];
    if (!(tensor.shape() == shape) || tensor.dtype() != dtype_of<std::remove_const_t<T>>)
      throw std::invalid_argument(
          prefix + name + " expected " + std::string(dtype_name(dtype_of<std::remove_const_t<T>>)) + " " +
          to_string(shape) + "; found " + std::string(dtype_name(tensor.dtype())) + " " + to_string(tensor.shape()));
    slot = tensor.template data<std::remove_const_t<T>>();
  });
  if (i != tensors.size())
    throw std::invalid_argument(prefix + "expected " + std::to_string(i) + " tensors; found " +
                                std::to_string(tensors.size()));
  return roles;
}

template ModelParameters<const float*> by_role(const ModelConfig&, const std::vector<Tensor>&, const char*);
template ModelParameters<const double*> by_role(const ModelConfig&, const std::vector<Tensor>&, const char*);
template ModelParameters<float*> by_role(const ModelConfig&, std::vector<Tensor>&, const char*);
template ModelParameters<double*> by_role(const ModelConfig&, std::vector<Tensor>&, const char*);

}  // namespace qkv
