// SPDX-License-Identifier: Apache-2.0
#include "model/layer_weights.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "model/buffer.h"

namespace qkv {
namespace {

using R = ParameterRole;

// The parameters concatenated in one prepared matrix, and the roles of their biases.
struct Joined {
  std::unique_ptr<Matrix> LayerWeights::*matrix;
  Tensor LayerWeights::*bias;  // null: the only part's bias is used in place
  std::vector<R> parts, biases;
};

std::vector<Joined> joined_matrices(const LayerConfig& c) {
  std::vector<Joined> all{{&LayerWeights::qkv, &LayerWeights::qkv_bias, {R::wq, R::wk, R::wv}, {R::bq, R::bk, R::bv}},
                          {&LayerWeights::wo, nullptr, {R::wo}, {}},
                          {&LayerWeights::up, &LayerWeights::up_bias, {R::w_up}, {R::b_up}},
                          {&LayerWeights::down, nullptr, {R::w_down}, {}}};
  if (c.gated) {
    all[2].parts = {R::w_gate, R::w_up};
    all[2].biases = {R::b_gate, R::b_up};
  }
  return all;
}

ConstView view_of(const ParameterViews& values, int number) {
  return number < 0 ? ConstView{} : values[static_cast<std::size_t>(number)];
}

NormWeights norm_weights(const LayerConfig& c, const ParameterTable& table, bool present, R gain, R bias,
                         std::int64_t layer) {
  NormWeights norm;
  norm.present = present;
  if (!present) return norm;
  norm.parameters.kind = c.norm;
  norm.parameters.eps = c.norm_eps;
  norm.gain_offset = c.norm_gain_offset;
  norm.gain = table.find(gain, layer);
  norm.bias = table.find(bias, layer);
  return norm;
}

// The norms of queries and keys, which have only a gain.
NormWeights group_norm_weights(const LayerConfig& c, const ParameterTable& table, R gain, std::int64_t layer) {
  NormWeights norm = norm_weights(c, table, c.qk_norm != QkNorm::none, gain, gain, layer);
  norm.parameters.kind = Norm::rmsnorm;
  norm.bias = -1;
  return norm;
}

}  // namespace

ModelWeights::ModelWeights(const ModelConfig& config, const ParameterTable& table, const Device& device, DType operand)
    : config_(&config), table_(&table), device_(&device), operand_(operand) {
  embedding_norm =
      norm_weights(config, table, config.embedding_norm, R::embedding_norm_gain, R::embedding_norm_bias, -1);
  final_norm = norm_weights(config, table, config.final_norm, R::final_norm_gain, R::final_norm_bias, -1);
  layers.resize(static_cast<std::size_t>(config.n_layer));
  for (std::int64_t i = 0; i < config.n_layer; ++i) {
    const LayerConfig& c = config.layer(i);
    LayerWeights& w = layers[static_cast<std::size_t>(i)];
    w.config = &c;
    w.layer = i;
    const bool before = c.norm_place != NormPlace::after, after = c.norm_place != NormPlace::before;
    const bool own = before && c.residual != Residual::parallel_shared_norm;
    w.attention_norm = norm_weights(c, table, before, R::attention_norm_gain, R::attention_norm_bias, i);
    w.attention_post_norm = norm_weights(c, table, after, R::attention_post_norm_gain, R::attention_post_norm_bias, i);
    w.mlp_norm = norm_weights(c, table, own, R::mlp_norm_gain, R::mlp_norm_bias, i);
    w.mlp_post_norm = norm_weights(c, table, after, R::mlp_post_norm_gain, R::mlp_post_norm_bias, i);
    w.q_norm = group_norm_weights(c, table, R::q_norm_gain, i);
    w.k_norm = group_norm_weights(c, table, R::k_norm_gain, i);
    w.qkv = device.matrix(operand, config.d_model, w.qkv_size());
    w.wo = device.matrix(operand, w.heads_size(), config.d_model);
    w.up = device.matrix(operand, config.d_model, w.up_size());
    w.down = device.matrix(operand, c.d_ff, config.d_model);
    if (c.alibi) {
      const std::vector<float> slopes = alibi_slopes(c.n_head);
      w.slopes = Tensor(Dims{c.n_head});
      std::copy(slopes.begin(), slopes.end(), w.slopes.data());
    }
    for (const auto* matrix : {&w.qkv, &w.wo, &w.up, &w.down}) matrices_.push_back(matrix->get());
  }
  head = device.matrix(operand, config.d_model, padded_vocab(config));
  matrices_.push_back(head.get());
}

void ModelWeights::bind(NormWeights& norm, const ParameterViews& values) {
  norm.parameters.gain = view_of(values, norm.gain);
  norm.parameters.bias = view_of(values, norm.bias);
  if (!norm.parameters.gain || !norm.gain_offset) return;
  if (!norm.shifted_gain.raw())
    norm.shifted_gain = device_->allocate(norm.parameters.gain.shape, norm.parameters.gain.dtype);
  device_->add_one(norm.parameters.gain, norm.shifted_gain);
  norm.parameters.gain = norm.shifted_gain;
}

// Binds non-matrix parameters: norms, biases, sinks, positions.
void ModelWeights::bind_vectors(const ParameterViews& values) {
  bind(embedding_norm, values);
  bind(final_norm, values);
  positions = view_of(values, table_->find(R::position_embedding));
  for (LayerWeights& w : layers) {
    for (NormWeights* norm :
         {&w.attention_norm, &w.attention_post_norm, &w.mlp_norm, &w.mlp_post_norm, &w.q_norm, &w.k_norm})
      bind(*norm, values);
    w.output_bias = view_of(values, table_->find(R::bo, w.layer));
    w.down_bias = view_of(values, table_->find(R::b_down, w.layer));
    w.sinks = view_of(values, table_->find(R::sinks, w.layer));
    for (const Joined& joined : joined_matrices(*w.config)) {
      if (!joined.bias || table_->find(joined.biases[0], w.layer) < 0) continue;
      Tensor& bias = w.*joined.bias;
      if (!bias.raw()) bias = device_->allocate(Dims{(w.*joined.matrix)->out()}, device_->stream_type());
      std::int64_t first = 0;
      for (const R role : joined.biases) {
        const ConstView part = view_of(values, table_->find(role, w.layer));
        const std::int64_t size = part.shape[0];
        device_->convert(
            part, columns_of(View{bias.raw(), bias.dtype(), Dims{1, bias.size()}, Dims{bias.size(), 1}}, first, size));
        first += size;
      }
    }
  }
}

void ModelWeights::prepare(const ParameterViews& values, bool with_backward) {
  if (ready_ && (backward_ || !with_backward)) return;
  if (stored_) throw std::logic_error("[model] parameters in their stored format have no gradients");
  ready_ = false;
  bind_vectors(values);
  tokens.rows = view_of(values, table_->find(R::token_embedding));
  // One task per layer, so that all threads clear newly allocated memory.
  device_->for_each(config_->n_layer, [&](std::int64_t i) {
    LayerWeights& w = layers[static_cast<std::size_t>(i)];
    for (const Joined& joined : joined_matrices(*w.config)) {
      std::vector<ConstView> parts;
      for (const R role : joined.parts) parts.push_back(view_of(values, table_->find(role, i)));
      device_->prepare(*(w.*joined.matrix), parts, with_backward);
    }
  });
  if (config_->tied_head)
    device_->prepare_transposed(*head, tokens.rows, with_backward);
  else
    device_->prepare(*head, std::array{view_of(values, table_->find(R::head))}, with_backward);
  ready_ = true;
  backward_ = with_backward;
}

namespace {

// Matrices read straight from a file, without an f32 copy of the model.
class StoredMatrices {
 public:
  StoredMatrices(const ParameterTable& table, const Device& device, const StoredParameters& source, bool keep_blocks)
      : table_(table), device_(device), source_(source), keep_blocks_(keep_blocks) {}

  bool stays_in_blocks(std::size_t i, std::int64_t in) const {
    return keep_blocks_ && in % 32 == 0 && is_blocks(source_.stored_type(i));
  }
  // Columns of blocks of parameter i, which has `count` columns.
  BlockColumns columns(std::size_t i, std::int64_t count) const {
    const StoredParameters* source = &source_;
    return {source_.stored_type(i), count,
            [source, i](std::int64_t first, std::int64_t n, std::byte* to) { source->read_blocks(i, first, n, to); }};
  }
  Tensor read(std::size_t i, DType dtype) const {
    Tensor values(table_.infos()[i].shape, dtype);
    source_.read(i, values.view());
    return values;
  }
  // Prepares W from its concatenated parts.
  void prepare(Matrix& w, std::span<const std::size_t> parts) const {
    const auto in_blocks = [&](std::size_t i) { return stays_in_blocks(i, w.in()); };
    if (std::all_of(parts.begin(), parts.end(), in_blocks)) {
      std::vector<BlockColumns> all;
      for (const std::size_t i : parts) all.push_back(columns(i, table_.infos()[i].shape[1]));
      return device_.prepare_blocks(w, all);
    }
    std::vector<Tensor> values;
    std::vector<ConstView> views;
    for (const std::size_t i : parts) values.push_back(read(i, device_.stream_type()));
    for (const Tensor& value : values) views.push_back(value);
    device_.prepare(w, views, false);
  }

 private:
  const ParameterTable& table_;
  const Device& device_;
  const StoredParameters& source_;
  bool keep_blocks_;
};

}  // namespace

void ModelWeights::prepare_stored(const ParameterViews& values, const StoredParameters& source, bool keep_blocks) {
  const StoredMatrices stored(*table_, *device_, source, keep_blocks);
  bind_vectors(values);
  for (LayerWeights& w : layers)
    for (const Joined& joined : joined_matrices(*w.config)) {
      std::vector<std::size_t> parts;
      for (const R role : joined.parts) parts.push_back(static_cast<std::size_t>(table_->find(role, w.layer)));
      stored.prepare(*(w.*joined.matrix), parts);
    }
  const auto token_table = static_cast<std::size_t>(table_->find(R::token_embedding));
  const bool blocks = stored.stays_in_blocks(token_table, config_->d_model);
  if (!blocks) {
    stored_tokens_ = stored.read(token_table, operand_);
    tokens.rows = stored_tokens_;
  }
  if (!config_->tied_head) {
    const auto number = static_cast<std::size_t>(table_->find(R::head));
    stored.prepare(*head, {&number, 1});
  }
  if (blocks) {
    Matrix* columns = head.get();
    if (!config_->tied_head) {
      stored_token_columns_ = device_->matrix(device_->stream_type(), config_->d_model, config_->vocab_size);
      columns = stored_token_columns_.get();
    }
    device_->prepare_blocks(*columns, std::array{stored.columns(token_table, config_->vocab_size)});
    tokens.columns = columns;
  } else if (config_->tied_head) {
    const Tensor wide =
        operand_ == device_->stream_type() ? Tensor() : stored.read(token_table, device_->stream_type());
    device_->prepare_transposed(*head, wide.raw() ? wide.view() : std::as_const(stored_tokens_).view(), false);
  }
  ready_ = stored_ = true;
  backward_ = false;
}

std::size_t ModelWeights::bytes() const {
  std::size_t bytes = 0;
  for (const Matrix* matrix : matrices_) bytes += matrix->bytes();
  return bytes;
}

}  // namespace qkv
