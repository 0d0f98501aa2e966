// SPDX-License-Identifier: Apache-2.0
// The public model API: checks arguments and calls the decoder.
#include "qkv/model.h"

#include <atomic>
#include <stdexcept>

#include "model/decoder.h"
#include "model/parameters.h"
#include "qkv/convert.h"

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

// Throws unless the batch can be evaluated; padding is not checked. Logits are counted in 64 bits.
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
  ParameterTable table;
  std::vector<Tensor> parameters;
  std::vector<Tensor>
      vectors;  // of an inference-only model, in flat order: non-matrix parameters, empty tensors for matrices
  ParameterViews values;  // views of parameters or vectors
  std::shared_ptr<Device> device;
  std::unique_ptr<Decoder> decoder;
  bool inference_only = false, recompute = false;
  // An access may end on a thread other than the computing one.
  std::atomic<int> accesses = 0;      // number of live accesses
  std::atomic<bool> changed = false;  // tensors may have new elements or new memory
  ModelProfile* profile = nullptr;
  ModelDropout dropout;

  Impl(const ModelConfig& wanted, std::shared_ptr<Device> on) : config(wanted.resolved()), device(std::move(on)) {
    parameter_count(config);  // throws if too large to count
    table = ParameterTable(config);
  }
  DType dtype() const { return device->stream_type(); }

  void bind(const std::vector<Tensor>& tensors) {
    values.clear();
    for (const Tensor& tensor : tensors) values.push_back(tensor.raw() ? tensor.view() : ConstView{});
  }
  void take(std::vector<Tensor> values_of_parameters) {
    check_tensors(table.infos(), values_of_parameters, dtype(), "model");
    parameters = std::move(values_of_parameters);
    bind(parameters);
    use_compute_dtype(dtype());
  }
  void use_compute_dtype(DType compute_dtype) {
    decoder = std::make_unique<Decoder>(config, table, *device, compute_dtype);
    decoder->set_recompute(recompute);
    decoder->set_profile(profile);
    decoder->set_dropout(dropout);
  }
  // The decoder, with current parameters.
  Decoder& ready() {
    if (changed || accesses > 0) {
      check_tensors(table.infos(), parameters, dtype(), "model");
      bind(parameters);
      decoder->invalidate_parameters();
      changed = false;
    }
    return *decoder;
  }
};

namespace {

std::shared_ptr<Device> device_of(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    refuse("dtype expected f32 or f64; found " + std::string(dtype_name(dtype)));
  return find_device(dtype == DType::f64 ? "reference" : "cpu");
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Model::Model(const ModelConfig& config, std::uint64_t seed, std::string_view device)
    : impl_(std::make_unique<Impl>(config, find_device(device))) {
  impl_->take(initial_parameters(impl_->config, seed, dtype()));
}

Model::Model(const ModelConfig& config, std::uint64_t seed, DType dtype)
    : impl_(std::make_unique<Impl>(config, device_of(dtype))) {
  impl_->take(initial_parameters(impl_->config, seed, dtype));
}

Model::Model(const ModelConfig& config, std::vector<Tensor> parameters)
    : impl_(std::make_unique<Impl>(config, device_of(parameters.empty() ? DType::f32 : parameters[0].dtype()))) {
  impl_->take(std::move(parameters));
}

WeightType weight_type_from_name(std::string_view name) {
  if (name == "auto") return std::nullopt;
  for (const DType type : {DType::f32, DType::bf16})
    if (dtype_name(type) == name) return type;
  throw std::invalid_argument("[weights] expected auto, f32 or bf16; found '" + std::string(name) + "'");
}

Model::Model(const ModelConfig& config, const StoredParameters& source, WeightType type)
    : impl_(std::make_unique<Impl>(config, device_of(DType::f32))) {
  Impl& m = *impl_;
  m.inference_only = true;
  bool all_bf16 = fast_bf16();
  for (std::size_t i = 0; i < infos().size(); ++i)
    all_bf16 = all_bf16 && (infos()[i].shape.rank() == 1 || source.stored_type(i) == DType::bf16);
  m.use_compute_dtype(type == DType::bf16 || (!type && all_bf16) ? DType::bf16 : DType::f32);
  for (std::size_t i = 0; i < infos().size(); ++i) {
    Tensor& tensor = m.vectors.emplace_back();
    if (infos()[i].decays() && infos()[i].role != ParameterRole::position_embedding) continue;
    tensor = Tensor(infos()[i].shape);
    source.read(i, tensor.view());
  }
  m.bind(m.vectors);
  m.decoder->keep_stored(m.values, source, !type);
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const noexcept { return impl_->config; }
DType Model::dtype() const noexcept { return impl_->dtype(); }
std::string_view Model::device() const noexcept { return impl_->device->name(); }

Model Model::on_device(std::string_view device) const {
  auto impl = std::make_unique<Impl>(config(), find_device(device));
  std::vector<Tensor> values;
  for (const Tensor& from : parameters()) values.push_back(converted(from, impl->dtype()));
  impl->take(std::move(values));
  return Model(std::move(impl));
}

const std::vector<ParameterInfo>& Model::infos() const noexcept { return impl_->table.infos(); }
const std::vector<Tensor>& Model::parameters() const {
  if (inference_only()) refuse("an inference-only model has no parameters");
  return impl_->parameters;
}

Model::ParameterAccess::ParameterAccess(Impl& impl) noexcept : impl_(impl) { ++impl_.accesses; }
Model::ParameterAccess::ParameterAccess(ParameterAccess&& other) noexcept : ParameterAccess(other.impl_) {}
Model::ParameterAccess::~ParameterAccess() {
  --impl_.accesses;
  impl_.changed = true;
}
std::vector<Tensor>& Model::ParameterAccess::operator*() const noexcept { return impl_.parameters; }

Model::ParameterAccess Model::change_parameters() {
  if (inference_only()) refuse("an inference-only model has no parameters");
  return ParameterAccess(*impl_);
}

std::vector<Tensor> Model::zeros_like_parameters() const {
  if (inference_only()) refuse("an inference-only model has no gradients");
  std::vector<Tensor> zeros;
  for (const ParameterInfo& info : infos()) zeros.emplace_back(info.shape, dtype());
  return zeros;
}

DType Model::compute_dtype() const noexcept { return impl_->decoder->operand(); }

void Model::set_compute_dtype(DType compute_dtype) {
  if (compute_dtype == this->compute_dtype()) return;
  if (inference_only()) refuse("the compute_dtype of an inference-only model is fixed");
  if (!impl_->device->supports_compute_dtype(compute_dtype))
    refuse("compute_dtype expected " + std::string(dtype() == DType::f32 ? "f32 or bf16" : "f64 for an f64 model") +
           "; found " + std::string(dtype_name(compute_dtype)));
  impl_->use_compute_dtype(compute_dtype);
}

void Model::set_recompute(bool recompute) {
  impl_->recompute = recompute;
  impl_->decoder->set_recompute(recompute);
}

void Model::set_profile(ModelProfile* profile) {
  impl_->profile = profile;
  impl_->decoder->set_profile(profile);
}

void Model::set_dropout(const ModelDropout& dropout) {
  if (!(dropout.p >= 0 && dropout.p < 1)) refuse("dropout expected 0 <= p < 1; found " + std::to_string(dropout.p));
  impl_->dropout = dropout;
  impl_->decoder->set_dropout(dropout);
}

bool fast_bf16() { return find_device("cpu")->fast_compute_dtype(DType::bf16); }

Tensor Model::logits(const Batch& batch, TraceSink* sink) {
  check(config(), batch, false);
  Tensor logits({batch.batch, batch.ctx, config().vocab_size}, dtype());
  if (logits.size() == 0) return logits;
  const View rows{logits.raw(), dtype(), Dims{batch.batch * batch.ctx, config().vocab_size},
                  Dims{config().vocab_size, 1}};
  impl_->ready().logits(impl_->values, {batch.batch, batch.ctx, batch.lengths}, batch.tokens, rows, sink);
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
  const std::int64_t rows = element_count(stream.shape) / d, vocab = config().vocab_size;
  const View x{const_cast<void*>(stream.data), stream.dtype, Dims{rows, d}, Dims{d, 1}};
  impl_->ready().unembed(impl_->values, x, {logits.raw(), dtype(), Dims{rows, vocab}, Dims{vocab, 1}});
  return logits;
}

Loss Model::loss(const Batch& batch) {
  check(config(), batch, true);
  return impl_->ready().loss(impl_->values, batch, 1, nullptr);
}

bool Model::inference_only() const noexcept { return impl_->inference_only; }

std::size_t Model::weight_bytes() const noexcept { return impl_->decoder->weight_bytes(); }

Loss Model::loss_and_gradients(const Batch& batch, double scale, GradientSum& sum) {
  if (inference_only()) refuse("an inference-only model has no gradients");
  check(config(), batch, true);
  if (sum.impl_->config != config() || sum.impl_->dtype != dtype())
    refuse("the gradient sum expected a model of the same configuration");
  if (batch.batch > sum.impl_->lanes.missing())
    refuse("the step expected " + std::to_string(sum.impl_->lanes.missing()) + " more sequences; found " +
           std::to_string(batch.batch));
  return impl_->ready().loss(impl_->values, batch, scale, sum.impl_.get());
}

Loss Model::loss_and_gradients(const Batch& batch, double scale, std::vector<Tensor>& gradients) {
  if (inference_only()) refuse("an inference-only model has no gradients");
  check_tensors(infos(), gradients, dtype(), "gradients");
  if (batch.batch == 0) return loss(batch);
  GradientSum sum(*this);
  sum.begin(batch.batch);
  const Loss result = loss_and_gradients(batch, scale, sum);
  const std::vector<Tensor>& step = sum.finish();
  for (std::size_t i = 0; i < step.size(); ++i) add_to(gradients[i], step[i]);
  return result;
}

namespace {

void check_part(const ModelConfig& c, const DecodePart& part) {
  if (!part.state || part.state->layers.size() != static_cast<std::size_t>(c.n_layer))
    refuse("state expected " + std::to_string(c.n_layer) + " layers; found " +
           (part.state ? std::to_string(part.state->layers.size()) : "none"));
  if (part.tokens.empty()) refuse("expected at least one token to evaluate; found none");
  if (!part.logits.empty()) check_size("logits", part.logits.size(), c.vocab_size);
  const std::int64_t before = part.state->size();
  if (static_cast<std::int64_t>(part.tokens.size()) > c.ctx_len - before)
    refuse("the context of " + std::to_string(c.ctx_len) + " tokens is full: " + std::to_string(before) +
           " evaluated; found " + std::to_string(part.tokens.size()) + " more");
  for (std::int32_t token : part.tokens) check_id("token", token, 0, c.vocab_size);
}

void check_parts(const ModelConfig& c, std::span<const DecodePart> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_part(c, parts[i]);
    for (std::size_t j = 0; j < i; ++j)
      if (parts[i].state == parts[j].state)
        refuse("expected a different state for each part of a batch; found one twice");
  }
}

}  // namespace

ModelState Model::make_state() const { return make_state(compute_dtype()); }

ModelState Model::make_state(DType type) const {
  if ((type == DType::f64) != (dtype() == DType::f64))
    refuse("a cache of an " + std::string(dtype_name(dtype())) + " model expected " +
           (type == DType::f64 ? "f32, bf16, f16 or q8_0" : "f64") + "; found " + std::string(dtype_name(type)));
  ModelState state;
  for (std::int64_t i = 0; i < config().n_layer; ++i) {
    const LayerConfig& c = config().layer(i);
    state.layers.emplace_back(1, c.n_kv_head, c.head_dim, c.v_head_dim, config().ctx_len, 0, type);
  }
  return state;
}

void Model::decode(std::span<const std::int32_t> tokens, ModelState& state, std::span<float> logits) {
  const DecodePart part{tokens, &state, logits};
  decode_batch({&part, 1});
}

void Model::decode_batch(std::span<const DecodePart> parts) {
  check_parts(config(), parts);
  if (parts.empty()) return;
  std::vector<std::int64_t> before;  // [parts]
  for (const DecodePart& part : parts) before.push_back(part.state->size());
  try {
    impl_->ready().read(impl_->values, parts);
  } catch (...) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (KvCache& layer : parts[i].state->layers)
        if (layer.size() > before[i]) layer.truncate(before[i]);
    throw;
  }
}

}  // namespace qkv
