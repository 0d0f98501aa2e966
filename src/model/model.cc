// SPDX-License-Identifier: Apache-2.0
// The public face of models: checks, then Network.
#include "qkv/model.h"

#include <stdexcept>
#include <variant>

#include "model/network.h"

namespace qkv {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("[model] " + message); }

void check_size(const char* name, std::size_t found, std::int64_t expected) {
  if (found != static_cast<std::size_t>(expected))
    refuse(std::string(name) + " expected " + std::to_string(expected) + " elements; found " + std::to_string(found));
}

void check_id(const char* name, std::int32_t id, std::int64_t least, std::int64_t vocab_size) {
  if (id < least || id >= vocab_size)
    refuse(std::string(name) + " expected " + std::to_string(least) + " ... " + std::to_string(vocab_size - 1) +
           "; found " + std::to_string(id));
}

// Throws unless the batch can be computed; padding is not looked at. The number of logits is counted in 64 bits.
void check(const ModelConfig& c, const Batch& batch, bool with_targets) {
  if (batch.batch < 0 || batch.ctx < 0) refuse("batch and ctx must not be negative");
  if (batch.ctx > c.ctx_len)
    refuse("ctx expected at most ctx_len = " + std::to_string(c.ctx_len) + "; found " + std::to_string(batch.ctx));
  element_count(Dims{batch.batch, batch.ctx, c.vocab_size});
  const std::int64_t rows = batch.batch * batch.ctx;
  check_size("tokens", batch.tokens.size(), rows);
  if (with_targets) check_size("targets", batch.targets.size(), rows);
  if (!batch.lengths.empty()) check_size("lengths", batch.lengths.size(), batch.batch);
  for (std::int64_t length : batch.lengths)
    if (length < 0 || length > batch.ctx)
      refuse("lengths expected 0 ... " + std::to_string(batch.ctx) + "; found " + std::to_string(length));
  const Sequences s{batch.batch, batch.ctx, batch.lengths};
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.length(b); ++t) {
      const auto i = static_cast<std::size_t>(b * s.ctx + t);
      check_id("token", batch.tokens[i], 0, c.vocab_size);
      if (with_targets) check_id("target", batch.targets[i], -1, c.vocab_size);
    }
}

}  // namespace

struct Model::Impl {
  ModelConfig config;
  DType dtype;
  std::vector<ParameterInfo> infos;
  std::vector<Tensor> parameters;
  std::variant<Network<float>, Network<double>> network{Network<float>{ModelConfig{}}};

  // Calls f(network, parameters by role) with the element type at hand.
  template <class F>
  auto visit(const F& f) {
    return std::visit(
        [&]<class T>(Network<T>& net) {
          const std::vector<Tensor>& values = parameters;
          return f(net, by_role<const T>(config, values, "model"));
        },
        network);
  }
};

Model::Model(const ModelConfig& config, std::uint64_t seed, DType dtype) : impl_(std::make_unique<Impl>()) {
  if (dtype != DType::f32 && dtype != DType::f64)
    refuse("dtype expected f32 or f64; found " + std::string(dtype_name(dtype)));
  impl_->config = config.resolved();
  impl_->dtype = dtype;
  impl_->infos = parameter_infos(impl_->config);
  parameter_count(impl_->config);  // throws if it cannot be counted
  impl_->parameters = initial_parameters(impl_->config, seed, dtype);
  if (dtype == DType::f64)
    impl_->network.emplace<Network<double>>(impl_->config);
  else
    impl_->network.emplace<Network<float>>(impl_->config);
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const noexcept { return impl_->config; }
DType Model::dtype() const noexcept { return impl_->dtype; }
const std::vector<ParameterInfo>& Model::infos() const noexcept { return impl_->infos; }
std::vector<Tensor>& Model::parameters() noexcept { return impl_->parameters; }
const std::vector<Tensor>& Model::parameters() const noexcept { return impl_->parameters; }

std::vector<Tensor> Model::zeros_like_parameters() const {
  std::vector<Tensor> zeros;
  for (const ParameterInfo& info : impl_->infos) zeros.emplace_back(info.shape, impl_->dtype);
  return zeros;
}

Tensor Model::logits(const Batch& batch) {
  check(config(), batch, false);
  Tensor logits({batch.batch, batch.ctx, config().vocab_size}, dtype());
  if (logits.size() == 0) return logits;
  impl_->visit([&]<class T>(Network<T>& net, const ModelParameters<const T*>& p) {
    net.logits(p, {batch.batch, batch.ctx, batch.lengths}, batch.tokens, logits.data<T>());
  });
  return logits;
}

Loss Model::loss(const Batch& batch) {
  check(config(), batch, true);
  return impl_->visit(
      [&]<class T>(Network<T>& net, const ModelParameters<const T*>& p) { return net.loss(p, batch, T{1}, nullptr); });
}

Loss Model::loss_and_gradients(const Batch& batch, double scale, std::vector<Tensor>& gradients) {
  check(config(), batch, true);
  return impl_->visit([&]<class T>(Network<T>& net, const ModelParameters<const T*>& p) {
    const ModelParameters<T*> g = by_role<T>(config(), gradients, "gradients");
    return net.loss(p, batch, static_cast<T>(scale), &g);
  });
}

ModelState Model::make_state() const {
  if (dtype() != DType::f32) refuse("reading token by token expected an f32 model; found f64");
  const ModelConfig& c = config();
  ModelState state;
  for (std::int64_t i = 0; i < c.n_layer; ++i)
    state.layers.emplace_back(1, c.n_kv_head, c.head_dim, c.v_head_dim, c.ctx_len);
  return state;
}

void Model::read(std::span<const std::int32_t> tokens, ModelState& state, std::span<float> logits) {
  const ModelConfig& c = config();
  if (dtype() != DType::f32) refuse("reading token by token expected an f32 model; found f64");
  if (state.layers.size() != static_cast<std::size_t>(c.n_layer))
    refuse("state expected " + std::to_string(c.n_layer) + " layers; found " + std::to_string(state.layers.size()));
  if (tokens.empty()) refuse("read expected at least one token; found none");
  check_size("logits", logits.size(), c.vocab_size);
  const std::int64_t before = state.size();
  if (static_cast<std::int64_t>(tokens.size()) > c.ctx_len - before)
    refuse("the context of " + std::to_string(c.ctx_len) + " tokens is full: " + std::to_string(before) +
           " read; found " + std::to_string(tokens.size()) + " more");
  for (std::int32_t token : tokens) check_id("token", token, 0, c.vocab_size);
  try {
    const std::vector<Tensor>& values = impl_->parameters;
    std::get<Network<float>>(impl_->network)
        .read(by_role<const float>(c, values, "model"), tokens, state.layers, logits.data());
  } catch (...) {
    for (KvCache& layer : state.layers)
      if (layer.size() > before) layer.truncate(before);
    throw;
  }
}

}  // namespace qkv
