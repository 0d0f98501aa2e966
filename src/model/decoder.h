// SPDX-License-Identifier: Apache-2.0
// The decoder on a device: computes logits, losses and gradients from parameters.
//
//   x = embedding_scale * token_embedding[token] (+ position_embedding[t])      x = norm(x) if embedding_norm
//   each layer: layer.h
//   logits = softcap(logit_scale * (norm(x) head)); steps that the configuration does not have are skipped
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "model/gradient_slots.h"
#include "model/layer.h"
#include "model/parameters.h"
#include "model/rotary_tables.h"
#include "qkv/model.h"
#include "qkv/trace.h"

namespace qkv {

class Decoder {
 public:
  // All three must outlive the decoder. config is resolved.
  Decoder(const ModelConfig& config, const ParameterTable& table, Device& device, DType operand);

  Device& device() const noexcept { return device_; }
  DType operand() const noexcept { return operand_; }
  // Call when the parameters have changed or are about to.
  void invalidate_parameters() noexcept { weights_.forget(); }
  // Uses matrices straight from a file, for forward passes; `values` has the other parameters.
  void keep_stored(const ParameterViews& values, const StoredParameters& source, bool keep_blocks) {
    weights_.prepare_stored(values, source, keep_blocks);
  }
  // Bytes of matrices read by a forward pass of one row.
  std::size_t weight_bytes() const { return weights_.bytes(); }
  // Activation checkpointing: per layer, keep only the input, q, k, v and the heads' output, and recompute the rest in
  // the backward pass.
  void set_recompute(bool recompute) noexcept { recompute_ = recompute; }
  void set_dropout(const ModelDropout& dropout) noexcept { dropout_ = dropout; }
  void set_profile(ModelProfile* profile) noexcept { profile_ = profile; }

  // logits [rows, vocab_size] in the stream dtype; sink may be null
  void logits(const ParameterViews& values, const Sequences& s, std::span<const std::int32_t> tokens,
              const View& logits, TraceSink* sink = nullptr);
  // stream [rows, d_model] -> logits [rows, vocab_size]
  void unembed(const ParameterViews& values, const View& stream, const View& logits);
  // Returns the loss; with gradients, adds scale * d(loss.sum) to their sum. batch has been checked.
  Loss loss(const ParameterViews& values, const Batch& batch, double scale, GradientSum::Impl* gradients);
  // Evaluates each part's tokens after those in its state, and writes the logits of the last one.
  void read(const ParameterViews& values, std::span<const DecodePart> parts);

 private:
  Pass pass(const Sequences& s, Attention& attention);
  View embed(Pass& pass, std::span<const std::int32_t> tokens);
  void trace_embedding(const Pass& pass, std::span<const std::int32_t> tokens, const View& sum);
  View layers_forward(Pass& pass, View x, bool keep);
  View forward(Pass& pass, std::span<const std::int32_t> tokens, bool keep);
  void backward(Pass& pass, std::span<const std::int32_t> tokens, const GradientSlots& g);
  void read_rows(std::span<const DecodePart> parts);
  void last_logits(std::span<const DecodePart> parts, const View& y);
  void finish_logits(const View& logits);
  void head_logits(const View& x, const View& logits);
  void head_loss(Pass& pass, const View& x, const std::int32_t* targets, double scale, const View& dx,
                 const GradientSlots* g, Loss& total);
  double chunk_loss(const View& x, std::span<const std::int32_t> targets, double scale, const View& dx, void* dhead,
                    bool fresh);
  void head_gradient(const View& x, const View& dlogits, bool fresh, void* dhead);
  RecomputedActivations& recomputed(std::size_t layer, bool keep) {
    return keep && !recompute_ ? work_.layers[layer].recomputed : work_.recomputed;
  }

  const ModelConfig& c_;
  const ParameterTable& table_;
  Device& device_;
  DType operand_;
  ModelWeights weights_;
  RotaryTables rotary_;
  Workspace work_;
  bool recompute_ = false;
  ModelProfile* profile_ = nullptr;
  ModelDropout dropout_;
};

}  // namespace qkv
