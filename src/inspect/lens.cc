// SPDX-License-Identifier: Apache-2.0
// The logit lens and attention rollout.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/parallel.h"
#include "inspect/checks.h"
#include "inspect/probabilities.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// The `top` most probable ids, descending; ties by id, NaN last. probs [vocab_size]
std::vector<std::int32_t> most_probable(const std::vector<double>& probs, std::int64_t top) {
  std::vector<std::int32_t> ids(probs.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto key = [&](std::int32_t id) {
    const double p = probs[static_cast<std::size_t>(id)];
    return std::isnan(p) ? -1.0 : p;
  };
  std::partial_sort(ids.begin(), ids.begin() + top, ids.end(),
                    [&](std::int32_t a, std::int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  ids.resize(static_cast<std::size_t>(top));
  return ids;
}

// The most probable token of each row. logits [ctx, vocab_size]
std::vector<std::int32_t> highest(const Tensor& logits) {
  const std::int64_t vocab = logits.shape()[1];
  std::vector<std::int32_t> ids;  // [ctx]
  for (std::int64_t t = 0; t < logits.shape()[0]; ++t) {
    const float* row = logits.data<float>() + t * vocab;
    ids.push_back(static_cast<std::int32_t>(std::max_element(row, row + vocab) - row));
  }
  return ids;
}

// stream [ctx, d_model] f32 -> [ctx, vocab_size] f32
Tensor lens_logits(Model& model, const Tensor& stream) {
  if (model.dtype() == DType::f32) return model.unembed(stream.view());
  Tensor wide(stream.shape(), DType::f64);
  std::copy_n(stream.data<float>(), stream.size(), wide.data<double>());
  const Tensor logits = model.unembed(std::as_const(wide).view());  // [ctx, vocab_size]
  Tensor narrow(logits.shape());
  std::transform(logits.data<double>(), logits.data<double>() + logits.size(), narrow.data<float>(),
                 [](double x) { return static_cast<float>(x); });
  return narrow;
}

}  // namespace

LensStage lens_stage(const Tensor& logits, std::int64_t top, std::span<const std::int32_t> next,
                     std::span<const std::int32_t> last) {
  if (logits.shape().rank() != 2) refuse_inspect("logits [ctx, vocab_size]", to_string(logits.shape()));
  const std::int64_t ctx = logits.shape()[0], vocab = logits.shape()[1];
  require_f32("logits", logits, Dims{ctx, vocab});
  if (top < 1 || vocab < 1) refuse_inspect("at least one token to keep", std::to_string(std::min(top, vocab)));
  top = std::min(top, vocab);
  if (static_cast<std::int64_t>(next.size()) + 1 < ctx || static_cast<std::int64_t>(last.size()) < ctx)
    refuse_inspect("the tokens of " + std::to_string(ctx) + " positions",
                   std::to_string(next.size()) + " next and " + std::to_string(last.size()) + " last tokens");
  for (const auto& list : {next, last})
    for (const std::int32_t id : list)
      if (id < 0 || id >= vocab) refuse_inspect("tokens below " + std::to_string(vocab), std::to_string(id));
  LensStage stage;
  stage.top_ids = Tensor(Dims{ctx, top}, DType::i32);
  stage.top_probs = Tensor(Dims{ctx, top});
  stage.next_prob = Tensor(Dims{ctx});
  stage.last_prob = Tensor(Dims{ctx});
  stage.entropy = Tensor(Dims{ctx});
  parallel_for(ctx, [&](std::int64_t t) {
    const std::vector<double> probs = softmax_row(logits.data<float>() + t * vocab, vocab);  // [vocab_size]
    const std::vector<std::int32_t> ids = most_probable(probs, top);                         // [top]
    const auto prob = [&](std::int32_t id) { return static_cast<float>(probs[static_cast<std::size_t>(id)]); };
    for (std::int64_t i = 0; i < top; ++i) {
      stage.top_ids.data<std::int32_t>()[t * top + i] = ids[static_cast<std::size_t>(i)];
      stage.top_probs.data<float>()[t * top + i] = prob(ids[static_cast<std::size_t>(i)]);
    }
    if (t + 1 < ctx) stage.next_prob.data<float>()[t] = prob(next[static_cast<std::size_t>(t)]);
    stage.last_prob.data<float>()[t] = prob(last[static_cast<std::size_t>(t)]);
    double entropy = 0;
    for (const double p : probs) entropy -= p > 0 ? p * std::log(p) : p;  // propagates NaN
    stage.entropy.data<float>()[t] = static_cast<float>(entropy);
  });
  return stage;
}

std::vector<LensStage> logit_lens(Model& model, const Trace& trace, std::int64_t top) {
  const std::int64_t ctx = trace.ctx();
  require_f32("the trace's logits", trace.logits, Dims{ctx, model.config().vocab_size});
  if (static_cast<std::int64_t>(trace.layers.size()) != model.config().n_layer || ctx < 1)
    refuse_inspect("a trace of " + std::to_string(model.config().n_layer) + " layers and at least one token",
                   std::to_string(trace.layers.size()) + " layers, " + std::to_string(ctx) + " tokens");
  const std::vector<std::int32_t> last = highest(trace.logits);              // [ctx]
  const auto next = std::span<const std::int32_t>(trace.tokens).subspan(1);  // [ctx - 1]
  std::vector<LensStage> stages;
  for (const TraceLayer& layer : trace.layers) {
    require_f32("a layer's resid_pre", layer.resid_pre, Dims{ctx, model.config().d_model});
    stages.push_back(lens_stage(lens_logits(model, layer.resid_pre), top, next, last));
  }
  stages.push_back(lens_stage(trace.logits, top, next, last));
  return stages;
}

Tensor attention_rollout(std::span<const Tensor* const> patterns) {
  if (patterns.empty()) refuse_inspect("the patterns of at least one layer", "none");
  const std::int64_t ctx = patterns[0]->shape().rank() == 3 ? patterns[0]->shape()[1] : 0;
  const auto n_layer = static_cast<std::int64_t>(patterns.size());
  for (const Tensor* pattern : patterns) {
    const Dims& shape = pattern->shape();
    if (shape.rank() != 3 || shape[1] != shape[2] || shape[0] < 1)
      refuse_inspect("patterns [n_head, ctx, ctx]", to_string(shape));
    require_f32("a layer's pattern", *pattern, {shape[0], ctx, ctx});
  }
  Tensor rollout({n_layer, ctx, ctx});
  for (std::int64_t l = 0; l < n_layer; ++l) {
    const std::int64_t n_head = patterns[static_cast<std::size_t>(l)]->shape()[0];
    const float* pattern = patterns[static_cast<std::size_t>(l)]->data<float>();          // [n_head, ctx, ctx]
    const float* before = l > 0 ? rollout.data<float>() + (l - 1) * ctx * ctx : nullptr;  // [ctx, ctx]
    float* after = rollout.data<float>() + l * ctx * ctx;                                 // [ctx, ctx]
    parallel_for(ctx, [=](std::int64_t i) {
      std::vector<double> row(static_cast<std::size_t>(ctx));  // [ctx]
      for (std::int64_t j = 0; j < ctx; ++j) {
        double weight = 0;
        for (std::int64_t h = 0; h < n_head; ++h) weight += pattern[(h * ctx + i) * ctx + j];
        weight = (weight / static_cast<double>(n_head) + (i == j ? 1 : 0)) / 2;
        if (!before) row[static_cast<std::size_t>(j)] += weight;
        for (std::int64_t c = 0; before && c < ctx && weight != 0; ++c)
          row[static_cast<std::size_t>(c)] += weight * before[j * ctx + c];
      }
      for (std::int64_t c = 0; c < ctx; ++c) after[i * ctx + c] = static_cast<float>(row[static_cast<std::size_t>(c)]);
    });
  }
  return rollout;
}

}  // namespace qkv
