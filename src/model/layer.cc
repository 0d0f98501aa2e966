// SPDX-License-Identifier: Apache-2.0
// f is a block's function (attention or MLP); norms only if configured:
//
//   block(x) = residual_scale * post_norm(f(norm(x)))          each with dropout in training
//   sequential            x = x + attention(x);  x = x + mlp(x)
//   parallel              x = x + attention(x) + mlp(x)
//   parallel_shared_norm  the same, both with attention's norm
#include "model/layer.h"

#include <optional>

#include "model/profile.h"
#include "model/trace_norm.h"

namespace qkv {
namespace {

// A block's norms, its buffers, and its trace sites and dropout kind.
struct Block {
  const NormWeights& norm;
  const NormWeights& post_norm;
  BlockActivations& kept;
  DropoutKind dropout;
  TraceSite scale, normalized, traced;
};

Block attention_of(const LayerWeights& w, RecomputedActivations& r) {
  using enum TraceSite;
  return {w.attention_norm, w.attention_post_norm, r.attention, DropoutKind::attention_residual,
          ln1_scale,        ln1_normalized,        attn_out};
}
Block mlp_of(const LayerWeights& w, RecomputedActivations& r) {
  using enum TraceSite;
  return {w.mlp_norm, w.mlp_post_norm, r.mlp, DropoutKind::mlp_residual, ln2_scale, ln2_normalized, mlp_out};
}

// from [rows, d_model] -> to [rows, d_model]; the dropout mask depends on each sequence's index in the step
void drop(const Pass& p, const Dropout& dropout, const View& from, const View& to) {
  for (std::int64_t i = 0; i < p.s.batch; ++i)
    p.device.dropout(dropout, (p.first_sequence + i) * p.ctx_len * p.d_model, rows_of(from, i * p.s.ctx, p.s.ctx),
                     rows_of(to, i * p.s.ctx, p.s.ctx));
}

// Adds stream.delta, if any, to `x`; -> the block's input, [rows, d_model] in the compute dtype
View begin_block(Pass& p, const Block& b, const LayerTrace& trace, std::optional<TraceSite> site, Buffer& x,
                 Stream& stream) {
  View y;
  {
    const PartTimer timer(p.profile, &ModelProfile::norms);
    const View before = stream.x;
    if (stream.delta) stream.x = p.stream(x, p.d_model);
    if (b.norm.present) {
      y = p.operands(b.kept.norm, p.d_model);
      const View stats = p.stream(b.kept.stats, 2);
      if (stream.delta)
        p.device.add_norm(b.norm.parameters, before, stream.delta, stream.x, y, stats);
      else
        p.device.norm(b.norm.parameters, stream.x, y, stats);
    } else {
      if (stream.delta) p.device.add(before, stream.delta, stream.x);
      y = p.as_operand(stream.x, b.kept.norm);
    }
    stream.delta = {};
  }
  if (site) trace.show(*site, trace.by_token(stream.x));
  if (b.norm.present) trace_norm(trace, b.scale, b.normalized, b.norm.parameters.kind, stream.x, b.kept.stats.get(), y);
  return y;
}

// Destination of the block's function.
View block_out(Pass& p, const Block& b, const View& delta) {
  return b.post_norm.present ? p.stream(b.kept.out, p.d_model) : delta;
}

// Post-processes the function's result in block_out() -> delta [rows, d_model]
void end_block(Pass& p, const Block& b, const LayerWeights& w, const LayerTrace& trace, const View& delta) {
  {
    const PartTimer timer(p.profile, &ModelProfile::norms);
    if (b.post_norm.present)
      p.device.norm(b.post_norm.parameters, b.kept.out.get(), delta, p.stream(b.kept.post_stats, 2));
    if (w.config->residual_scale != 1) p.device.scale(w.config->residual_scale, delta);
    if (const Dropout dropout = p.dropout_at(w.layer, b.dropout)) drop(p, dropout, delta, delta);
  }
  trace.pass(b.traced, trace.by_token(delta));
}

}  // namespace

void layer_forward(Pass& p, const LayerWeights& w, LayerActivations& a, RecomputedActivations& r, Stream& stream) {
  const LayerTrace trace = p.trace(w.layer);
  const Block attention = attention_of(w, r), mlp = mlp_of(w, r);
  const View delta = p.stream(p.work.delta, p.d_model);  // [rows, d_model]
  // y [rows, d_model]: the input of a block
  View y = begin_block(p, attention, trace, TraceSite::resid_pre, a.x, stream);
  attention_forward(p, w, a, y, block_out(p, attention, delta));
  end_block(p, attention, w, trace, delta);
  if (w.config->residual == Residual::sequential) {
    stream.delta = delta;
    y = begin_block(p, mlp, trace, TraceSite::resid_mid, r.middle, stream);
    mlp_forward(p, w, r, y, block_out(p, mlp, delta));
    end_block(p, mlp, w, trace, delta);
  } else {
    const View both = p.stream(p.work.mlp_delta, p.d_model);  // [rows, d_model]
    if (w.config->residual == Residual::parallel) y = begin_block(p, mlp, trace, {}, r.middle, stream);
    mlp_forward(p, w, r, y, block_out(p, mlp, both));
    end_block(p, mlp, w, trace, both);
    p.device.add(delta, both, delta);
  }
  stream.delta = delta;
}

namespace {

// Gradient of the stream -> gradient of the block function's output: [rows, d_model] in the compute dtype
View begin_block_backward(Pass& p, const Block& b, const LayerWeights& w, const View& dx, const GradientSlots& g) {
  const PartTimer timer(p.profile, &ModelProfile::norms);
  const Dropout dropout = p.dropout_at(w.layer, b.dropout);
  const bool scaled = w.config->residual_scale != 1, further = b.post_norm.present || scaled;
  if (!dropout && !further) return p.as_operand(dx, p.work.dy);
  const View d = further ? p.stream(p.work.dblock, p.d_model) : p.operands(p.work.dy, p.d_model);
  if (dropout)
    drop(p, dropout, dx, d);
  else
    p.device.convert(dx, d);
  if (!further) return d;
  if (scaled) p.device.scale(w.config->residual_scale, d);
  if (b.post_norm.present)
    p.device.norm_backward(p.s, g.steps, b.post_norm.parameters, b.kept.out.get(), b.kept.post_stats.get(), d, false, d,
                           {g.of(b.post_norm.gain), g.of(b.post_norm.bias)});
  return p.as_operand(d, p.work.dy);
}

// dx += gradient of a block's input x through its norm; dy [rows, d_model]
void end_block_backward(Pass& p, const Block& b, const View& x, const View& dy, const View& dx,
                        const GradientSlots& g) {
  const PartTimer timer(p.profile, &ModelProfile::norms);
  if (!b.norm.present) return p.device.add(dx, dy, dx);
  p.device.norm_backward(p.s, g.steps, b.norm.parameters, x, b.kept.stats.get(), dy, true, dx,
                         {g.of(b.norm.gain), g.of(b.norm.bias)});
}

}  // namespace

void layer_backward(Pass& p, const LayerWeights& w, LayerActivations& a, RecomputedActivations& r, const View& dx,
                    const ParameterTable& table, const GradientSlots& g) {
  const Block attention = attention_of(w, r), mlp = mlp_of(w, r);
  const View x = a.x.get(), dnorm = p.stream(p.work.dnorm, p.d_model);  // [rows, d_model]
  const auto input = [&](const Block& b, const View& from) {            // same as in the forward pass
    return b.norm.present ? b.kept.norm.get() : p.as_operand(from, b.kept.norm);
  };
  if (w.config->residual == Residual::sequential) {
    const View middle = r.middle.get();  // [rows, d_model]
    mlp_backward(p, w, r, input(mlp, middle), begin_block_backward(p, mlp, w, dx, g), dnorm, table, g);
    end_block_backward(p, mlp, middle, dnorm, dx, g);
    attention_backward(p, w, a, input(attention, x), begin_block_backward(p, attention, w, dx, g), dnorm, table, g);
    return end_block_backward(p, attention, x, dnorm, dx, g);
  }
  const bool shared = w.config->residual == Residual::parallel_shared_norm;
  const View dmlp = p.stream(p.work.dmlp, p.d_model);  // [rows, d_model]
  mlp_backward(p, w, r, input(shared ? attention : mlp, x), begin_block_backward(p, mlp, w, dx, g), dmlp, table, g);
  attention_backward(p, w, a, input(attention, x), begin_block_backward(p, attention, w, dx, g), dnorm, table, g);
  if (shared)
    p.device.add(dnorm, dmlp, dnorm);
  else
    end_block_backward(p, mlp, x, dmlp, dx, g);
  end_block_backward(p, attention, x, dnorm, dx, g);
}

}  // namespace qkv
