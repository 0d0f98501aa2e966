// SPDX-License-Identifier: Apache-2.0
// The public face of models: checks, then Network.
#include "qkv/model.h"

#include <stdexcept>
#include <variant>

#include "linalg/weights.h"
#include "model/network.h"
#include "model/parameters.h"

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

// to += from
void accumulate(const Tensor& from, Tensor& to) {
  const auto add = [&]<class T>(const T* x, T* y) {
    for (std::int64_t i = 0; i < to.size(); ++i) y[i] += x[i];
  };
  if (to.dtype() == DType::f64)
    add(from.data<double>(), to.data<double>());
  else
    add(from.data<float>(), to.data<float>());
}

}  // namespace

namespace {

// What the passes below do not do yet.
void check_supported(const ModelConfig& c) {
  if (!c.layers.empty() || c.window_left != -1 || c.attention_scale != 0 || c.softcap != 0 || c.alibi || c.sinks ||
      c.qk_norm != QkNorm::none || c.qkv_bias != c.output_bias || c.rope_share != 1 || c.norm_gain_offset ||
      c.norm_place != NormPlace::before || c.residual != Residual::sequential || c.residual_scale != 1 ||
      c.embedding_scale != 1 || c.logit_scale != 1 || c.logit_softcap != 0 || c.rope_scaling.attention_factor != 1 ||
      c.positions == Positions::none || c.gated != (c.activation == Activation::silu) ||
      c.activation == Activation::gelu_erf)
    refuse("the configuration has settings that models cannot compute with");
}

}  // namespace

struct Model::Impl {
  ModelConfig config;
  DType dtype;
  std::vector<ParameterInfo> infos;
  std::vector<Tensor> parameters;
  bool reads_only = false;
  std::vector<Tensor> vectors;  // of a model that only reads, in the flat order: what is no matrix, else empty tensors
  std::variant<Network<float, float>, Network<float, bf16>, Network<double, double>> network{
      Network<float, float>{ModelConfig{}}};
  bool recompute = false;
  ModelProfile* profile = nullptr;
  ModelDropout dropout;

  // Calls f(network, parameters by role) with the element type at hand.
  template <class F>
  auto visit(const F& f) {
    return std::visit(
        [&]<class T, class S>(Network<T, S>& net) {
          if constexpr (std::is_same_v<T, double>) net.forget_parameters();
          if (reads_only) return f(net, vectors_by_role<const T>());
          const std::vector<Tensor>& values = parameters;
          return f(net, by_role<const T>(config, values, "model"));
        },
        network);
  }

  template <class T>
  ModelParameters<T*> vectors_by_role() const {
    ModelParameters<T*> roles;
    std::size_t i = 0;
    visit_parameters(config, roles, [&](const std::string&, const Dims&, bool, T*& slot) {
      slot = static_cast<T*>(vectors[i++].raw());
    });
    return roles;
  }

  // The matrices of `source` in the network at hand, the rest in `vectors`.
  void keep_stored(const StoredParameters& source, bool keep_blocks) {
    for (std::size_t i = 0; i < infos.size(); ++i) {
      Tensor& tensor = vectors.emplace_back();
      if (infos[i].decays() && infos[i].role != ParameterRole::position_embedding) continue;
      tensor = Tensor(infos[i].shape);
      source.read(i, tensor.view());
    }
    std::visit(
        [&]<class T, class S>(Network<T, S>& net) {
          if constexpr (std::is_same_v<T, float>) net.keep_stored(source, keep_blocks);
        },
        network);
  }

  template <class N>
  void use_network() {
    network.emplace<N>(config);
    std::visit(
        [&](auto& net) {
          net.set_recompute(recompute);
          net.set_profile(profile);
          net.set_dropout(dropout);
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
  check_supported(impl_->config);
  parameter_count(impl_->config);  // throws if it cannot be counted
  impl_->parameters = initial_parameters(impl_->config, seed, dtype);
  if (dtype == DType::f64)
    impl_->use_network<Network<double, double>>();
  else
    impl_->use_network<Network<float, float>>();
}

Model::Model(const ModelConfig& config, std::vector<Tensor> parameters) : impl_(std::make_unique<Impl>()) {
  impl_->config = config.resolved();
  impl_->infos = parameter_infos(impl_->config);
  check_supported(impl_->config);
  impl_->dtype = parameters.empty() ? DType::f32 : parameters[0].dtype();
  impl_->parameters = std::move(parameters);
  const std::vector<Tensor>& values = impl_->parameters;
  if (impl_->dtype == DType::f64) {
    by_role<const double>(impl_->config, values, "model");  // throws unless they fit
    impl_->use_network<Network<double, double>>();
  } else {
    by_role<const float>(impl_->config, values, "model");
    impl_->use_network<Network<float, float>>();
  }
}

Model::Model(const ModelConfig& config, const StoredParameters& source, WeightType type)
    : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.config = config.resolved();
  m.infos = parameter_infos(m.config);
  check_supported(m.config);
  m.dtype = DType::f32;
  m.reads_only = true;
  bool all_bf16 = fast_bf16();
  for (std::size_t i = 0; i < m.infos.size(); ++i)
    all_bf16 = all_bf16 && (m.infos[i].shape.rank() == 1 || source.stored_type(i) == StoredType::bf16);
  if (type == WeightType::bf16 || (type == WeightType::automatic && all_bf16))
    m.use_network<Network<float, bf16>>();
  else
    m.use_network<Network<float, float>>();
  m.keep_stored(source, type == WeightType::automatic);
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const noexcept { return impl_->config; }
DType Model::dtype() const noexcept { return impl_->dtype; }
const std::vector<ParameterInfo>& Model::infos() const noexcept { return impl_->infos; }
std::vector<Tensor>& Model::parameters() {
  if (reads_only()) refuse("a model made for reading alone has no parameters");
  std::visit([](auto& net) { net.forget_parameters(); }, impl_->network);
  return impl_->parameters;
}
const std::vector<Tensor>& Model::parameters() const {
  if (reads_only()) refuse("a model made for reading alone has no parameters");
  return impl_->parameters;
}

std::vector<Tensor> Model::zeros_like_parameters() const {
  if (reads_only()) refuse("a model made for reading alone has no gradients");
  std::vector<Tensor> zeros;
  for (const ParameterInfo& info : impl_->infos) zeros.emplace_back(info.shape, impl_->dtype);
  return zeros;
}

DType Model::operands() const noexcept {
  return std::visit([]<class T, class S>(const Network<T, S>&) { return dtype_of<S>; }, impl_->network);
}

void Model::set_operands(DType operands) {
  if (operands == this->operands()) return;
  if (reads_only()) refuse("a model made for reading alone keeps its operands");
  if (dtype() != DType::f32 || (operands != DType::f32 && operands != DType::bf16))
    refuse("operands expected " + std::string(dtype() == DType::f32 ? "f32 or bf16" : "f64 for an f64 model") +
           "; found " + std::string(dtype_name(operands)));
  if (operands == DType::bf16)
    impl_->use_network<Network<float, bf16>>();
  else
    impl_->use_network<Network<float, float>>();
}

void Model::set_recompute(bool recompute) {
  impl_->recompute = recompute;
  std::visit([&](auto& net) { net.set_recompute(recompute); }, impl_->network);
}

void Model::set_profile(ModelProfile* profile) {
  impl_->profile = profile;
  std::visit([&](auto& net) { net.set_profile(profile); }, impl_->network);
}

void Model::set_dropout(const ModelDropout& dropout) {
  if (!(dropout.p >= 0 && dropout.p < 1))
    refuse("dropout expected p from 0 to below 1; found " + std::to_string(dropout.p));
  impl_->dropout = dropout;
  std::visit([&](auto& net) { net.set_dropout(dropout); }, impl_->network);
}

bool fast_bf16() { return has_fast_bf16_products(); }

Tensor Model::logits(const Batch& batch, TraceSink* sink) {
  check(config(), batch, false);
  Tensor logits({batch.batch, batch.ctx, config().vocab_size}, dtype());
  if (logits.size() == 0) return logits;
  impl_->visit([&]<class T, class S>(Network<T, S>& net, const ModelParameters<const T*>& p) {
    net.logits(p, {batch.batch, batch.ctx, batch.lengths}, batch.tokens, logits.data<T>(), sink);
  });
  return logits;
}

Tensor Model::unembed(const ConstView& stream) {
  const std::int64_t d = config().d_model;
  const int last = stream.rank() - 1;
  if (last < 0 || stream.shape[last] != d)
    refuse("the stream expected rows of d_model = " + std::to_string(d) + "; found the shape " +
           to_string(stream.shape));
  if (stream.dtype != dtype())
    refuse("the stream expected " + std::string(dtype_name(dtype())) + "; found " +
           std::string(dtype_name(stream.dtype)));
  if (!(stream.strides == contiguous_strides(stream.shape))) refuse("the stream expected contiguous elements");
  Dims shape = stream.shape;
  shape[last] = config().vocab_size;
  Tensor logits(shape, dtype());
  if (logits.size() == 0) return logits;
  if (!stream) refuse("the stream expected elements; found a view without data");
  impl_->visit([&]<class T, class S>(Network<T, S>& net, const ModelParameters<const T*>& p) {
    net.unembed(p, element_count(stream.shape) / d, static_cast<const T*>(stream.data), logits.data<T>());
  });
  return logits;
}

Loss Model::loss(const Batch& batch) {
  check(config(), batch, true);
  return impl_->visit([&]<class T, class S>(Network<T, S>& net, const ModelParameters<const T*>& p) {
    return net.loss(p, batch, T{1}, nullptr);
  });
}

bool Model::reads_only() const noexcept { return impl_->reads_only; }

std::size_t Model::weight_bytes() const noexcept {
  return std::visit([](const auto& net) { return net.weight_bytes(); }, impl_->network);
}

Loss Model::loss_and_gradients(const Batch& batch, double scale, GradientSum& sum) {
  if (reads_only()) refuse("a model made for reading alone has no gradients");
  check(config(), batch, true);
  if (sum.impl_->config != config() || sum.impl_->dtype != dtype())
    refuse("the gradient sum expected the model it was made for");
  if (batch.batch > sum.impl_->lanes.missing())
    refuse("the step expected " + std::to_string(sum.impl_->lanes.missing()) + " more sequences; found " +
           std::to_string(batch.batch));
  return impl_->visit([&]<class T, class S>(Network<T, S>& net, const ModelParameters<const T*>& p) {
    return net.loss(p, batch, static_cast<T>(scale), sum.impl_.get());
  });
}

Loss Model::loss_and_gradients(const Batch& batch, double scale, std::vector<Tensor>& gradients) {
  if (reads_only()) refuse("a model made for reading alone has no gradients");
  if (dtype() == DType::f64)
    by_role<double>(config(), gradients, "gradients");  // throws unless they fit
  else
    by_role<float>(config(), gradients, "gradients");
  if (batch.batch == 0) return loss(batch);
  GradientSum sum(*this);
  sum.begin(batch.batch);
  const Loss result = loss_and_gradients(batch, scale, sum);
  const std::vector<Tensor>& step = sum.finish();
  for (std::size_t i = 0; i < step.size(); ++i) accumulate(step[i], gradients[i]);
  return result;
}

namespace {

CacheType cache_type_of(DType operands) { return operands == DType::bf16 ? CacheType::bf16 : CacheType::f32; }

void check_part(const ModelConfig& c, const ReadPart& part) {
  if (!part.state || part.state->layers.size() != static_cast<std::size_t>(c.n_layer))
    refuse("state expected " + std::to_string(c.n_layer) + " layers; found " +
           (part.state ? std::to_string(part.state->layers.size()) : "none"));
  if (part.tokens.empty()) refuse("read expected at least one token; found none");
  if (!part.logits.empty()) check_size("logits", part.logits.size(), c.vocab_size);
  const std::int64_t before = part.state->size();
  if (static_cast<std::int64_t>(part.tokens.size()) > c.ctx_len - before)
    refuse("the context of " + std::to_string(c.ctx_len) + " tokens is full: " + std::to_string(before) +
           " read; found " + std::to_string(part.tokens.size()) + " more");
  for (std::int32_t token : part.tokens) check_id("token", token, 0, c.vocab_size);
}

void check_parts(const ModelConfig& c, std::span<const ReadPart> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_part(c, parts[i]);
    for (std::size_t j = 0; j < i; ++j)
      if (parts[i].state == parts[j].state) refuse("parts of a batch expected different states; found one twice");
  }
}

}  // namespace

ModelState Model::make_state() const { return make_state(cache_type_of(operands())); }

ModelState Model::make_state(CacheType type) const {
  if (dtype() != DType::f32) refuse("reading token by token expected an f32 model; found f64");
  const ModelConfig& c = config();
  ModelState state;
  for (std::int64_t i = 0; i < c.n_layer; ++i)
    state.layers.emplace_back(1, c.n_kv_head, c.head_dim, c.v_head_dim, c.ctx_len, 0, type);
  return state;
}

void Model::read(std::span<const std::int32_t> tokens, ModelState& state, std::span<float> logits) {
  const ReadPart part{tokens, &state, logits};
  read_batch({&part, 1});
}

void Model::read_batch(std::span<const ReadPart> parts) {
  if (dtype() != DType::f32) refuse("reading token by token expected an f32 model; found f64");
  check_parts(config(), parts);
  if (parts.empty()) return;
  std::vector<std::int64_t> before;  // [parts]
  for (const ReadPart& part : parts) before.push_back(part.state->size());
  try {
    impl_->visit([&]<class T, class S>(Network<T, S>& net, const ModelParameters<const T*>& p) {
      if constexpr (std::is_same_v<T, float>) net.read(p, parts);
    });
  } catch (...) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (KvCache& layer : parts[i].state->layers)
        if (layer.size() > before[i]) layer.truncate(before[i]);
    throw;
  }
}

}  // namespace qkv
