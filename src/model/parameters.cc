// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "core/parallel.h"
#include "core/random.h"

namespace qkv {
namespace {

using R = ParameterRole;

// Lists the parameters of a model in flat order.
class Listing {
 public:
  Listing(const ModelConfig& c, std::vector<ParameterInfo>& infos) : c_(c), infos_(infos) {}

  void model() {
    add("token_embedding", {c_.vocab_size, c_.d_model}, R::token_embedding);
    if (c_.positions == Positions::learned) add("position_embedding", {c_.ctx_len, c_.d_model}, R::position_embedding);
    if (c_.embedding_norm) norm("embedding_norm", c_, R::embedding_norm_gain, R::embedding_norm_bias);
    for (layer_ = 0; layer_ < c_.n_layer; ++layer_) layer(c_.layer(layer_));
    layer_ = -1;
    if (c_.final_norm) norm("final_norm", c_, R::final_norm_gain, R::final_norm_bias);
    if (!c_.tied_head) add("head", {c_.d_model, c_.vocab_size}, R::head);
  }

 private:
  void layer(const LayerConfig& c) {
    const bool before = c.norm_place != NormPlace::after, after = c.norm_place != NormPlace::before;
    if (before) norm("attention_norm", c, R::attention_norm_gain, R::attention_norm_bias);
    attention(c);
    if (after) norm("attention_post_norm", c, R::attention_post_norm_gain, R::attention_post_norm_bias);
    if (before && c.residual != Residual::parallel_shared_norm) norm("mlp_norm", c, R::mlp_norm_gain, R::mlp_norm_bias);
    if (c.gated) product("w_gate", "b_gate", c_.d_model, c.d_ff, c.mlp_bias, R::w_gate, R::b_gate);
    product("w_up", "b_up", c_.d_model, c.d_ff, c.mlp_bias, R::w_up, R::b_up);
    product("w_down", "b_down", c.d_ff, c_.d_model, c.mlp_bias, R::w_down, R::b_down);
    if (after) norm("mlp_post_norm", c, R::mlp_post_norm_gain, R::mlp_post_norm_bias);
  }
  void attention(const LayerConfig& c) {
    const std::int64_t q_size = c.n_head * c.head_dim, k_size = c.n_kv_head * c.head_dim;
    const std::int64_t v_size = c.n_kv_head * c.v_head_dim, out_size = c.n_head * c.v_head_dim;
    product("wq", "bq", c_.d_model, q_size, c.qkv_bias, R::wq, R::bq);
    product("wk", "bk", c_.d_model, k_size, c.qkv_bias, R::wk, R::bk);
    product("wv", "bv", c_.d_model, v_size, c.qkv_bias, R::wv, R::bv);
    if (c.qk_norm != QkNorm::none) {
      const bool all = c.qk_norm == QkNorm::all_heads;
      add("q_norm.gain", Dims{all ? q_size : c.head_dim}, R::q_norm_gain);
      add("k_norm.gain", Dims{all ? k_size : c.head_dim}, R::k_norm_gain);
    }
    if (c.sinks) add("sinks", Dims{c.n_head}, R::sinks);
    product("wo", "bo", out_size, c_.d_model, c.output_bias, R::wo, R::bo);
  }
  void product(const char* matrix, const char* bias, std::int64_t in, std::int64_t out, bool has_bias, R w, R b) {
    add(matrix, {in, out}, w);
    if (has_bias) add(bias, Dims{out}, b);
  }
  void norm(const std::string& name, const LayerConfig& c, R gain, R bias) {
    if (c.norm_gain) add(name + ".gain", Dims{c_.d_model}, gain);
    if (c.norm_bias) add(name + ".bias", Dims{c_.d_model}, bias);
  }
  void add(const std::string& name, const Dims& shape, R role) {
    element_count(shape);  // throws if too large to count
    infos_.push_back({layer_ < 0 ? name : "layers." + std::to_string(layer_) + "." + name, shape, role, layer_});
  }

  const ModelConfig& c_;
  std::vector<ParameterInfo>& infos_;
  std::int64_t layer_ = -1;
};

}  // namespace

ParameterKind kind_of(ParameterRole role) noexcept {
  switch (role) {
    case R::token_embedding:
    case R::position_embedding:
      return ParameterKind::embedding;
    case R::wq:
    case R::wk:
    case R::wv:
    case R::wo:
    case R::w_gate:
    case R::w_up:
    case R::w_down:
    case R::adapter:
      return ParameterKind::matrix;
    case R::head:
      return ParameterKind::head;
    case R::sinks:
      return ParameterKind::sink;
    case R::bq:
    case R::bk:
    case R::bv:
    case R::bo:
    case R::b_gate:
    case R::b_up:
    case R::b_down:
    case R::embedding_norm_bias:
    case R::attention_norm_bias:
    case R::attention_post_norm_bias:
    case R::mlp_norm_bias:
    case R::mlp_post_norm_bias:
    case R::final_norm_bias:
      return ParameterKind::bias;
    case R::embedding_norm_gain:
    case R::attention_norm_gain:
    case R::q_norm_gain:
    case R::k_norm_gain:
    case R::attention_post_norm_gain:
    case R::mlp_norm_gain:
    case R::mlp_post_norm_gain:
    case R::final_norm_gain:
      return ParameterKind::gain;
  }
  return ParameterKind::gain;
}

std::vector<ParameterInfo> parameter_infos(const ModelConfig& config) {
  std::vector<ParameterInfo> infos;
  Listing(config.resolved(), infos).model();
  return infos;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ParameterInfo& info : parameter_infos(config))
    if (__builtin_add_overflow(count, element_count(info.shape), &count))
      throw std::invalid_argument("[model] too many parameters to count");
  return count;
}

ParameterTable::ParameterTable(const ModelConfig& config) : infos_(parameter_infos(config)) {
  Numbers none;
  none.fill(-1);
  at_.assign(static_cast<std::size_t>(config.n_layer) + 1, none);
  for (std::size_t i = 0; i < infos_.size(); ++i)
    at_[static_cast<std::size_t>(infos_[i].layer + 1)][static_cast<std::size_t>(infos_[i].role)] = static_cast<int>(i);
}

void check_tensors(const std::vector<ParameterInfo>& infos, const std::vector<Tensor>& tensors, DType dtype,
                   const char* where) {
  const std::string prefix = std::string("[") + where + "] ";
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (i >= tensors.size())
      throw std::invalid_argument(prefix + "expected a tensor for " + infos[i].name + "; found only " +
                                  std::to_string(tensors.size()) + " tensors");
    const Tensor& tensor = tensors[i];
    if (!(tensor.shape() == infos[i].shape) || tensor.dtype() != dtype)
      throw std::invalid_argument(prefix + infos[i].name + " expected " + std::string(dtype_name(dtype)) + " " +
                                  to_string(infos[i].shape) + "; found " + std::string(dtype_name(tensor.dtype())) +
                                  " " + to_string(tensor.shape()));
  }
  if (tensors.size() != infos.size())
    throw std::invalid_argument(prefix + "expected " + std::to_string(infos.size()) + " tensors; found " +
                                std::to_string(tensors.size()));
}

namespace {

template <class T>
void fill_normal(std::uint64_t seed, std::uint64_t stream, double deviation, Tensor& tensor) {
  const Random random(seed, stream);
  T* values = tensor.data<T>();
  parallel_ranges(tensor.size(), 65536, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[i] = static_cast<T>(deviation * random.normal(static_cast<std::uint64_t>(i)));
  });
}

constexpr double kDeviation = 0.02;

// About the root mean square of the head's input: 1 after a norm; without one, the embedding and what each attention and
// MLP adds, which has size 1 after a norm of its own and is small otherwise.
double head_input_size(const ModelConfig& config) {
  if (config.final_norm) return 1;
  double squares = config.embedding_norm ? 1 : std::pow(config.embedding_scale * kDeviation, 2);
  for (std::int64_t i = 0; i < config.n_layer; ++i) {
    const LayerConfig& layer = config.layer(i);
    if (layer.norm_place != NormPlace::before) squares += 2 * std::pow(layer.residual_scale, 2);
  }
  return std::sqrt(squares);
}

// Of the head, or of the embedding that is one. The loss starts within 0.1 of ln(vocab_size):
//   * logits of variance v = d_model * deviation^2 start it v / 2 above;
//   * a tied head gives the input token itself a logit of up to d_model * deviation, since the stream begins as that
//     token's row: ln(1 + (exp(logit) - 1) / vocab_size) more.
double head_deviation(const ModelConfig& config) {
  constexpr double kLogitVariance = 0.1, kOwnShare = 0.03;
  const auto d_model = static_cast<double>(config.d_model);
  const double scale = std::max(1.0, config.logit_scale * head_input_size(config));
  double deviation = std::min(kDeviation, std::sqrt(kLogitVariance / d_model) / scale);
  if (config.tied_head)
    deviation =
        std::min(deviation, std::log1p(kOwnShare * static_cast<double>(config.vocab_size)) / (d_model * scale));
  return deviation;
}

// Standard deviation of a parameter's initial values; 0: zeros.
double initial_deviation(const ModelConfig& config, const ParameterInfo& info) {
  if (!info.decays()) return 0;
  if (info.role == R::head || (config.tied_head && info.role == R::token_embedding)) return head_deviation(config);
  if (info.role == R::wo || info.role == R::w_down)
    return kDeviation / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  return kDeviation;
}

}  // namespace

std::vector<Tensor> initial_parameters(const ModelConfig& config, std::uint64_t seed, DType dtype) {
  std::vector<Tensor> tensors;
  for (const ParameterInfo& info : parameter_infos(config)) {
    const auto stream = static_cast<std::uint64_t>(tensors.size());
    Tensor& tensor = tensors.emplace_back(info.shape, dtype);
    const LayerConfig& layer = info.layer < 0 ? config : config.layer(info.layer);
    const double deviation = initial_deviation(config, info);
    const bool ones = kind_of(info.role) == ParameterKind::gain && !layer.norm_gain_offset;
    const auto fill = [&]<class T>(T) {
      if (deviation > 0) fill_normal<T>(seed, stream, deviation, tensor);
      if (ones) std::fill_n(tensor.data<T>(), tensor.size(), T{1});
    };
    dtype == DType::f64 ? fill(double{}) : fill(float{});
  }
  return tensors;
}

}  // namespace qkv
