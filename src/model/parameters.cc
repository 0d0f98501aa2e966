// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/parallel.h"
#include "core/random.h"

namespace qkv {

std::vector<ParameterInfo> parameter_infos(const ModelConfig& config) {
  std::vector<ParameterInfo> infos;
  ModelParameters<char> roles;
  visit_parameters(config.resolved(), roles, [&](const std::string& name, const Dims& shape, bool decays, char&) {
    element_count(shape);  // throws if it cannot be counted
    infos.push_back({name, shape, decays});
  });
  return infos;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ParameterInfo& info : parameter_infos(config))
    if (__builtin_add_overflow(count, element_count(info.shape), &count))
      throw std::invalid_argument("[model] too many parameters to count");
  return count;
}

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

namespace {

enum class Start { ones, zeros, normal, residual, head };

Start start_of(const ModelConfig& c, const std::string& name) {
  const auto ends_with = [&](std::string_view end) { return name.ends_with(end); };
  if (ends_with(".gain")) return Start::ones;
  if (name == "head" || (c.tied_head && name == "token_embedding")) return Start::head;
  if (ends_with(".wo") || ends_with(".w_down")) return Start::residual;
  return Start::normal;
}

template <class T>
void draw(std::uint64_t seed, std::uint64_t stream, double deviation, Tensor& tensor) {
  const Random random(seed, stream);
  T* values = tensor.data<T>();
  parallel_ranges(tensor.size(), 65536, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[i] = static_cast<T>(deviation * random.normal(static_cast<std::uint64_t>(i)));
  });
}

template <class T>
void fill_ones(Tensor& tensor) {
  std::fill_n(tensor.data<T>(), tensor.size(), T{1});
}

}  // namespace

std::vector<Tensor> initial_parameters(const ModelConfig& config, std::uint64_t seed, DType dtype) {
  constexpr double kDeviation = 0.02;
  // A head reads rows of about unit size: logits of variance d_model * deviation^2 cost half of it in loss over
  // ln(vocab_size), so wide models start with a smaller head.
  constexpr double kLogitVariance = 0.1;
  std::vector<Tensor> tensors;
  for (const ParameterInfo& info : parameter_infos(config)) {
    const auto stream = static_cast<std::uint64_t>(tensors.size());
    Tensor& tensor = tensors.emplace_back(info.shape, dtype);
    const Start start = info.decays || info.name.ends_with(".gain") ? start_of(config, info.name) : Start::zeros;
    double deviation = kDeviation;
    if (start == Start::residual) deviation /= std::sqrt(2.0 * static_cast<double>(config.n_layer));
    if (start == Start::head)
      deviation = std::min(deviation, std::sqrt(kLogitVariance / static_cast<double>(config.d_model)));
    if (start == Start::zeros) continue;
    if (start == Start::ones)
      dtype == DType::f64 ? fill_ones<double>(tensor) : fill_ones<float>(tensor);
    else
      dtype == DType::f64 ? draw<double>(seed, stream, deviation, tensor)
                          : draw<float>(seed, stream, deviation, tensor);
  }
  return tensors;
}

}  // namespace qkv
