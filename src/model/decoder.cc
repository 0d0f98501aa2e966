// SPDX-License-Identifier: Apache-2.0
// Full passes over sequences, forward and backward. decoder_head.cc: LM head and loss; decoder_read.cc: prefill and
// decode.
#include "model/decoder.h"

#include <algorithm>

#include "model/attend.h"
#include "model/pass_size.h"
#include "model/profile.h"
#include "model/trace_norm.h"

namespace qkv {

Decoder::Decoder(const ModelConfig& config, const ParameterTable& table, Device& device, DType operand)
    : c_(config),
      table_(table),
      device_(device),
      operand_(operand),
      weights_(config, table, device, operand),
      rotary_(device, weights_.layers) {}

Pass Decoder::pass(const Sequences& s, Attention& attention) {
  return {.device = device_,
          .operand = operand_,
          .s = s,
          .work = work_,
          .attention = attention,
          .rotary = rotary_.views(),
          .d_model = c_.d_model,
          .ctx_len = c_.ctx_len,
          .profile = profile_};
}

// -> x [rows, d_model], the first layer's input
View Decoder::embed(Pass& p, std::span<const std::int32_t> tokens) {
  const View x = p.stream(work_.layers[0].x, c_.d_model);
  const View sum = c_.embedding_norm ? p.stream(work_.embedding, c_.d_model) : x;  // [rows, d_model]
  {
    const PartTimer timer(profile_, &ModelProfile::embedding);
    device_.embed(p.s, tokens, 0, weights_.tokens, c_.embedding_scale, weights_.positions, sum);
  }
  if (p.sink) trace_embedding(p, tokens, sum);
  if (!c_.embedding_norm) return x;
  {
    const PartTimer timer(profile_, &ModelProfile::norms);
    device_.norm(weights_.embedding_norm.parameters, sum, x, p.stream(work_.embedding_stats, 2));
  }
  trace_norm(p.trace(-1), TraceSite::embed_ln_scale, TraceSite::embed_ln_normalized, c_.norm, sum,
             work_.embedding_stats.get(), x);
  return x;
}

// sum [rows, d_model]: the output of embed()
void Decoder::trace_embedding(const Pass& p, std::span<const std::int32_t> tokens, const View& sum) {
  const LayerTrace around = p.trace(-1);
  const ConstView positions = weights_.positions;  // [ctx_len, d_model] or empty
  if (!positions) return around.show(TraceSite::embed, around.by_token(sum));
  if (around.wants(TraceSite::embed)) {
    Tensor alone(Dims{p.s.rows(), c_.d_model}, device_.stream_type());
    device_.embed(p.s, tokens, 0, weights_.tokens, c_.embedding_scale, {}, alone);
    around.show(TraceSite::embed, around.by_token(alone));
  }
  around.show(TraceSite::pos_embed,
              {positions.data, positions.dtype, Dims{p.s.batch, p.s.ctx, c_.d_model}, Dims{0, c_.d_model, 1}});
}

// x [rows, d_model], the first layer's input -> the LM head's input, [rows, d_model] in the compute dtype. The final
// residual stream is left in work_.x.
View Decoder::layers_forward(Pass& p, View x, bool keep) {
  Stream stream{x, {}};
  const std::size_t count = weights_.layers.size();
  for (std::size_t i = 0; i < count; ++i) {
    const LayerWeights& w = weights_.layers[i];
    p.after_layer = i + 1 < count ? weights_.layers[i + 1].qkv.get() : weights_.head.get();
    layer_forward(p, w, work_.layers[keep ? i : 0], recomputed(i, keep), stream);
    const LayerTrace trace = p.trace(w.layer);
    if (trace.wants(TraceSite::resid_post)) {
      Tensor sum(Dims{p.s.rows(), c_.d_model}, device_.stream_type());
      device_.add(stream.x, stream.delta, sum);
      trace.show(TraceSite::resid_post, trace.by_token(sum));
    }
  }
  const PartTimer timer(profile_, &ModelProfile::norms);
  const View last = p.stream(work_.x, c_.d_model);
  if (!c_.final_norm) {
    device_.add(stream.x, stream.delta, last);
    return p.as_operand(last, work_.final_norm);
  }
  const View y = p.operands(work_.final_norm, c_.d_model), stats = p.stream(work_.final_stats, 2);
  device_.add_norm(weights_.final_norm.parameters, stream.x, stream.delta, last, y, stats);
  trace_norm(p.trace(-1), TraceSite::ln_final_scale, TraceSite::ln_final_normalized, c_.norm, last, stats, y);
  return y;
}

// -> the LM head's input, [rows, d_model] in the compute dtype
View Decoder::forward(Pass& p, std::span<const std::int32_t> tokens, bool keep) {
  rotary_.reach(p.s.ctx);
  p.rotary = rotary_.views();
  work_.layers.resize(std::max(work_.layers.size(), keep ? weights_.layers.size() : 1));
  return layers_forward(p, embed(p, tokens), keep);
}

// On entry, work_.dx contains the gradient of the LM head's input.
void Decoder::backward(Pass& p, std::span<const std::int32_t> tokens, const GradientSlots& g) {
  const View dx = work_.dx.get();  // [rows, d_model]
  // y = norm(x): adds the norm's parameter gradients and replaces the gradient of y by that of x.
  const auto through_norm = [&](const NormWeights& norm, const View& x, const View& stats) {
    const PartTimer timer(profile_, &ModelProfile::norms);
    device_.norm_backward(p.s, g.steps, norm.parameters, x, stats, dx, false, dx, {g.of(norm.gain), g.of(norm.bias)});
  };
  if (c_.final_norm) through_norm(weights_.final_norm, work_.x.get(), work_.final_stats.get());
  for (std::size_t i = weights_.layers.size(); i-- > 0;) {
    const LayerWeights& w = weights_.layers[i];
    LayerActivations& a = work_.layers[i];
    RecomputedActivations& r = recomputed(i, true);
    if (recompute_) {
      Stream stream{a.x.get(), {}};
      p.recompute = true;
      layer_forward(p, w, a, r, stream);
      p.recompute = false;
    }
    layer_backward(p, w, a, r, dx, table_, g);
  }
  if (c_.embedding_norm) through_norm(weights_.embedding_norm, work_.embedding.get(), work_.embedding_stats.get());
  const PartTimer timer(profile_, &ModelProfile::embedding);
  const auto touched = g.touched();
  device_.embed_backward(p.s, g.steps, tokens, c_.embedding_scale, dx, Dims{c_.vocab_size, c_.d_model},
                         g.of(table_.find(ParameterRole::token_embedding)), touched, Dims{c_.ctx_len, c_.d_model},
                         g.of(table_.find(ParameterRole::position_embedding)));
}

void Decoder::logits(const ParameterViews& values, const Sequences& s, std::span<const std::int32_t> tokens,
                     const View& logits, TraceSink* sink) {
  weights_.prepare(values, false);
  const std::int64_t group = sink ? s.batch : sequences_per_pass(s.ctx);  // a sink gets all sequences at once
  for (std::int64_t b = 0; b < s.batch; b += group) {
    BatchAttention attention;
    Pass p = pass(s.part(b, group), attention);
    p.sink = sink;
    const View x = forward(p, tokens.subspan(static_cast<std::size_t>(b * s.ctx)), false);
    head_logits(x, rows_of(logits, b * s.ctx, p.s.rows()));
  }
}

Loss Decoder::loss(const ParameterViews& values, const Batch& batch, double scale, GradientSum::Impl* gradients) {
  weights_.prepare(values, gradients != nullptr);
  const Sequences s{batch.batch, batch.ctx, batch.lengths};
  const std::int64_t group = sequences_per_pass(s.ctx);
  Loss total;
  for (std::int64_t b = 0; b < s.batch; b += group) {
    const auto offset = static_cast<std::size_t>(b * s.ctx);
    const auto tokens = batch.tokens.subspan(offset);
    BatchAttention attention;
    Pass p = pass(s.part(b, group), attention);
    GradientSlots slots;
    if (gradients) {
      p.dropout = dropout_;
      p.first_sequence = gradients->lanes.next();
      slots = take_slots(*gradients, p.s.batch);
    }
    const View x = forward(p, tokens, gradients != nullptr);              // [rows, d_model]
    const View dx = gradients ? p.stream(work_.dx, c_.d_model) : View{};  // [rows, d_model]
    head_loss(p, x, batch.targets.data() + offset, scale, dx, gradients ? &slots : nullptr, total);
    if (gradients) backward(p, tokens, slots);
  }
  return total;
}

}  // namespace qkv
