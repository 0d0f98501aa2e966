// SPDX-License-Identifier: Apache-2.0
// The LM head and the loss. Logits are computed in chunks of rows: in training they never exist for a whole batch.
#include <algorithm>
#include <vector>

#include "model/decoder.h"
#include "model/pass_size.h"
#include "model/profile.h"

namespace qkv {

// Applies logit scale and softcap to logits [rows, padded].
void Decoder::finish_logits(const View& logits) {
  if (c_.logit_scale != 1) device_.scale(c_.logit_scale, logits);
  if (c_.logit_softcap != 0) device_.softcap(c_.logit_softcap, logits);
}

// x [rows, d_model] in the compute dtype -> logits [rows, vocab_size]
void Decoder::head_logits(const View& x, const View& logits) {
  const std::int64_t vocab = c_.vocab_size, padded = padded_vocab(c_), most = rows_of_logits(c_);
  for (std::int64_t i = 0; i < x.shape[0]; i += most) {
    const std::int64_t count = std::min(most, x.shape[0] - i);
    const View to = rows_of(logits, i, count);
    const View wide = padded == vocab ? to : work_.logits.take(device_, logits.dtype, Dims{count, padded});
    device_.product(rows_of(x, i, count), *weights_.head, {}, wide);
    finish_logits(wide);
    for (std::int64_t r = 0; r < count && padded != vocab; ++r)
      device_.convert(columns_of(rows_of(wide, r, 1), 0, vocab), rows_of(to, r, 1));
  }
}

void Decoder::unembed(const ParameterViews& values, const View& stream, const View& logits) {
  weights_.prepare(values, false);
  const Dims shape = stream.shape;
  View y = stream;  // [rows, d_model] in the compute dtype
  if (c_.final_norm) {
    y = work_.final_norm.take(device_, operand_, shape);
    device_.norm(weights_.final_norm.parameters, stream, y,
                 work_.final_stats.take(device_, stream.dtype, Dims{shape[0], 2}));
  } else if (operand_ != stream.dtype) {
    y = work_.final_norm.take(device_, operand_, shape);
    device_.convert(stream, y);
  }
  head_logits(y, logits);
}

// Adds the loss of a group of sequences to total. The summation order does not depend on the groups: a sequence's rows
// in order, then the sequences in order. x [rows, d_model], the LM head's input -> dx [rows, d_model], its gradient
void Decoder::head_loss(Pass& p, const View& x, const std::int32_t* targets, double scale, const View& dx,
                        const GradientSlots* g, Loss& total) {
  const PartTimer timer(profile_, &ModelProfile::head);
  const std::int64_t most = rows_of_logits(c_);
  SlotPointers dhead{};
  std::vector<SumStep> steps;
  if (g) {
    device_.fill_zero(dx);
    dhead = c_.tied_head ? g->tied_head() : g->of(table_.find(ParameterRole::head));
    steps = g->steps;
  } else {
    for (std::int64_t b = 0; b < p.s.batch; ++b) steps.push_back({0, -1, true, b});
  }
  const bool wanted = dhead[0] != nullptr;  // head gradient: [d_model, vocab_size]; tied: [vocab_size, d_model]
  for (const SumStep& step : steps) {
    void* to = dhead[static_cast<std::size_t>(step.to)];
    if (step.from >= 0) {
      const auto slot = [&](void* data) {
        return View{data, device_.stream_type(), Dims{c_.d_model, c_.vocab_size}, Dims{c_.vocab_size, 1}};
      };
      if (wanted) device_.add(slot(to), slot(dhead[static_cast<std::size_t>(step.from)]), slot(to));
      continue;
    }
    const std::int64_t b = step.sequence, length = p.s.length(b);
    if (wanted && length == 0) head_gradient(rows_of(x, 0, 0), {}, step.fresh, to);
    double sum = 0;
    for (std::int64_t t = 0; t < length; t += most) {
      const std::int64_t first = b * p.s.ctx + t, rows = std::min(most, length - t);
      const std::span<const std::int32_t> own(targets + first, static_cast<std::size_t>(rows));
      sum += chunk_loss(rows_of(x, first, rows), own, scale, g ? rows_of(dx, first, rows) : View{},
                        wanted ? to : nullptr, step.fresh && t == 0);
      total.count += std::count_if(own.begin(), own.end(), [](std::int32_t y) { return y >= 0; });
    }
    if (g) g->sum->losses.push_back(sum);
    total.sum += sum;
  }
}

// The loss of some rows of a sequence; x [rows, d_model] -> dx [rows, d_model] unless empty, dhead unless null
double Decoder::chunk_loss(const View& x, std::span<const std::int32_t> targets, double scale, const View& dx,
                           void* dhead, bool fresh) {
  const Dims shape{x.shape[0], padded_vocab(c_)};
  const View logits = work_.logits.take(device_, device_.stream_type(), shape);
  const View losses = work_.losses.take(device_, DType::f64, Dims{shape[0]});
  View dlogits, capped;
  if (dx) dlogits = operand_ == logits.dtype ? logits : work_.dlogits.take(device_, operand_, shape);
  device_.product(x, *weights_.head, {}, logits);
  finish_logits(logits);
  if (dx && c_.logit_softcap != 0) {
    capped = work_.capped.take(device_, logits.dtype, shape);
    device_.convert(logits, capped);
  }
  device_.cross_entropy(c_.vocab_size, logits, targets, scale, dlogits, losses);
  std::vector<double> host(targets.size());
  device_.to_host(losses, host.data());
  double sum = 0;
  for (const double loss : host) sum += loss;
  if (!dx) return sum;
  if (capped) device_.softcap_backward(c_.logit_softcap, capped, dlogits);
  if (c_.logit_scale != 1) device_.scale(c_.logit_scale, dlogits);
  device_.product_backward(dlogits, *weights_.head, dx);
  if (dhead) head_gradient(x, dlogits, fresh, dhead);
  return sum;
}

// dhead (+)= x^T dlogits, or its transpose if the head is tied; x [rows, d_model], dlogits [rows, padded]
void Decoder::head_gradient(const View& x, const View& dlogits, bool fresh, void* dhead) {
  const View columns{dlogits.data, operand_, Dims{x.shape[0], c_.vocab_size}, Dims{padded_vocab(c_), 1}};
  const SumStep step{0, -1, fresh, 0};
  const WeightGradient gradient =
      c_.tied_head ? WeightGradient{columns, x, {dhead}} : WeightGradient{x, columns, {dhead}};
  device_.weight_gradients({1, x.shape[0]}, {&step, 1}, {&gradient, 1});
}

}  // namespace qkv
