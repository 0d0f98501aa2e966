// SPDX-License-Identifier: Apache-2.0
#include "qkv/model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "c_api/model_handle.h"
#include "qkv/device.h"

namespace qkv::c_api {

Batch batch_of(const qkv_batch* batch, bool with_targets, const char* where) {
  require_given(batch, where, "batch");
  require_given(batch->tokens, where, "batch.tokens");
  if (with_targets) require_given(batch->targets, where, "batch.targets");
  if (batch->batch < 1 || batch->ctx < 1)
    throw std::invalid_argument(std::string("[") + where + "] expected batch and ctx of at least 1; found " +
                                std::to_string(batch->batch) + " and " + std::to_string(batch->ctx));
  const auto count = static_cast<std::size_t>(element_count({batch->batch, batch->ctx}));
  Batch result{batch->batch, batch->ctx, {batch->tokens, count}, {}, {}};
  if (with_targets) result.targets = {batch->targets, count};
  return result;
}

void check_capacity(std::size_t needed, std::size_t capacity, const char* where) {
  if (needed > capacity)
    throw TooSmall(std::string("[") + where + "] expected a capacity of " + std::to_string(needed) + "; found " +
                   std::to_string(capacity));
}

}  // namespace qkv::c_api

namespace {

using qkv::c_api::batch_of;
using qkv::c_api::check_capacity;
using qkv::c_api::guarded;
using qkv::c_api::require_given;

void tell(const qkv::ModelConfig& from, const char* preset, qkv_model_config* to) {
  *to = {preset,       from.n_layer, from.n_head,     from.n_kv_head, from.head_dim,
         from.d_model, from.d_ff,    from.vocab_size, from.ctx_len};
}

qkv::ModelConfig config_of(const qkv_model_config& given) {
  qkv::ModelConfig config = given.preset == nullptr ? qkv::ModelConfig{} : qkv::preset(given.preset);
  config.n_layer = given.n_layer;
  config.n_head = given.n_head;
  config.n_kv_head = given.n_kv_head;
  config.head_dim = given.head_dim;
  config.v_head_dim = 0;
  config.d_model = given.d_model;
  config.d_ff = given.d_ff;
  config.vocab_size = given.vocab_size;
  config.ctx_len = given.ctx_len;
  return config.resolved();
}

}  // namespace

extern "C" {

qkv_status qkv_model_config_init(qkv_model_config* config, const char* preset) {
  return guarded([&] {
    require_given(config, "qkv_model_config_init", "config");
    qkv::ModelConfig from;
    from.vocab_size = 257;
    if (preset != nullptr) from = qkv::preset(preset);
    tell(from, preset, config);
  });
}

size_t qkv_device_count(void) {
  size_t count = 0;
  guarded([&] { count = qkv::devices().size(); });
  return count;
}

const char* qkv_device_name(size_t index) {
  const char* name = nullptr;  // a string literal
  guarded([&] { name = qkv::devices().at(index).name.data(); });
  return name;
}

const char* qkv_model_device(const qkv_model* model) {
  return model == nullptr ? nullptr : model->loaded.model.device().data();
}

qkv_status qkv_model_load(const char* path, const char* device, qkv_model** model) {
  return guarded([&] {
    require_given(model, "qkv_model_load", "model");
    *model = nullptr;
    require_given(path, "qkv_model_load", "path");
    *model = std::make_unique<qkv_model>(qkv_model{qkv::load_model(path, device == nullptr ? "" : device)}).release();
  });
}

qkv_status qkv_model_create(const qkv_model_config* config, uint64_t seed, const char* device, qkv_model** model) {
  return guarded([&] {
    require_given(model, "qkv_model_create", "model");
    *model = nullptr;
    require_given(config, "qkv_model_create", "config");
    qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
    const qkv::ModelConfig resolved = config_of(*config);
    if (resolved.vocab_size < tokenizer.size())
      throw std::invalid_argument("[qkv_model_create] expected a vocab_size of at least " +
                                  std::to_string(tokenizer.size()) + "; found " + std::to_string(resolved.vocab_size));
    const std::int32_t end = tokenizer.end_token();
    *model =
        std::make_unique<qkv_model>(
            qkv_model{{qkv::Model(resolved, seed, device == nullptr ? "cpu" : device), std::move(tokenizer), {end}}})
            .release();
  });
}

qkv_status qkv_model_save(const qkv_model* model, const char* directory) {
  return guarded([&] {
    require_given(model, "qkv_model_save", "model");
    require_given(directory, "qkv_model_save", "directory");
    qkv::save_model(directory, model->loaded.model, model->loaded.tokenizer, model->loaded.text_facts());
  });
}

void qkv_model_free(qkv_model* model) { delete model; }

qkv_status qkv_model_get_config(const qkv_model* model, qkv_model_config* config) {
  return guarded([&] {
    require_given(model, "qkv_model_get_config", "model");
    require_given(config, "qkv_model_get_config", "config");
    tell(model->loaded.model.config().resolved(), nullptr, config);
  });
}

int64_t qkv_model_parameter_count(const qkv_model* model) {
  return model == nullptr ? 0 : qkv::parameter_count(model->loaded.model.config());
}

int32_t qkv_model_end_token(const qkv_model* model) {
  if (model == nullptr) return -1;
  return model->loaded.end_tokens.empty() ? model->loaded.tokenizer.end_token() : model->loaded.end_tokens[0];
}

qkv_status qkv_encode(const qkv_model* model, const char* text, size_t bytes, int32_t* ids, size_t capacity,
                      size_t* count) {
  return guarded([&] {
    require_given(model, "qkv_encode", "model");
    require_given(count, "qkv_encode", "count");
    if (bytes > 0) require_given(text, "qkv_encode", "text");
    if (capacity > 0) require_given(ids, "qkv_encode", "ids");
    const std::vector<std::int32_t> found = model->loaded.tokenizer.encode(std::string_view(text, bytes));
    *count = found.size();
    check_capacity(found.size(), capacity, "qkv_encode");
    std::copy(found.begin(), found.end(), ids);
  });
}

qkv_status qkv_decode(const qkv_model* model, const int32_t* ids, size_t n, char* text, size_t capacity,
                      size_t* count) {
  return guarded([&] {
    require_given(model, "qkv_decode", "model");
    require_given(count, "qkv_decode", "count");
    if (n > 0) require_given(ids, "qkv_decode", "ids");
    if (capacity > 0) require_given(text, "qkv_decode", "text");
    const std::string found = model->loaded.tokenizer.decode(std::vector<std::int32_t>(ids, ids + n));
    *count = found.size();
    check_capacity(found.size(), capacity, "qkv_decode");
    std::copy(found.begin(), found.end(), text);
  });
}

qkv_status qkv_model_logits(qkv_model* model, const qkv_batch* batch, float* logits, size_t capacity) {
  return guarded([&] {
    constexpr const char* kWhere = "qkv_model_logits";
    require_given(model, kWhere, "model");
    require_given(logits, kWhere, "logits");
    const qkv::Batch sequences = batch_of(batch, false, kWhere);
    qkv::Model& network = model->loaded.model;
    const qkv::Dims shape{sequences.batch, sequences.ctx, network.config().vocab_size};
    check_capacity(static_cast<std::size_t>(qkv::element_count(shape)), capacity, kWhere);
    const qkv::Tensor found = network.logits(sequences);  // [batch, ctx, vocab_size]
    if (found.dtype() == qkv::DType::f64) {
      std::transform(found.data<double>(), found.data<double>() + found.size(), logits,
                     [](double x) { return static_cast<float>(x); });
    } else {
      std::copy(found.data(), found.data() + found.size(), logits);
    }
  });
}

qkv_status qkv_model_loss(qkv_model* model, const qkv_batch* batch, double* mean, int64_t* count) {
  return guarded([&] {
    require_given(model, "qkv_model_loss", "model");
    require_given(mean, "qkv_model_loss", "mean");
    const qkv::Loss loss = model->loaded.model.loss(batch_of(batch, true, "qkv_model_loss"));
    *mean = loss.mean();
    if (count != nullptr) *count = loss.count;
  });
}

}  // extern "C"
