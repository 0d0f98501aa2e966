// SPDX-License-Identifier: Apache-2.0
// One forward pass over one text, recorded.
#include <algorithm>

#include "inspect/checks.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// [1, ctx, vocab_size] of any type -> [ctx, vocab_size] f32
Tensor as_rows_f32(const Tensor& logits) {
  Tensor rows({logits.shape()[1], logits.shape()[2]});
  if (logits.dtype() == DType::f64)
    std::transform(logits.data<double>(), logits.data<double>() + logits.size(), rows.data<float>(),
                   [](double x) { return static_cast<float>(x); });
  else
    std::copy_n(logits.data<float>(), logits.size(), rows.data<float>());
  return rows;
}

std::vector<TraceSite> sites_of(const TraceOptions& options) {
  std::vector<TraceSite> sites = options.sites;
  if (sites.empty()) return sites;
  if (options.lens_top > 0) sites.insert(sites.end(), {TraceSite::resid_pre, TraceSite::resid_post});
  if (options.rollout) sites.push_back(TraceSite::pattern);
  return sites;
}

}  // namespace

Trace trace_text(Model& model, std::span<const std::int32_t> tokens, const TraceOptions& options) {
  if (tokens.empty()) refuse_inspect("a text of at least one token", "none");
  if (options.lens_top < 0) refuse_inspect("lens_top of at least 0", std::to_string(options.lens_top));
  TraceRecorder recorder(model.config().n_layer, sites_of(options));
  const Batch batch{1, static_cast<std::int64_t>(tokens.size()), tokens, {}, {}};
  Trace trace;
  trace.config = model.config();
  trace.logits = as_rows_f32(model.logits(batch, &recorder));
  trace.tokens.assign(tokens.begin(), tokens.end());
  trace.layers = std::move(recorder.layers);
  if (options.lens_top > 0) trace.lens = logit_lens(model, trace, options.lens_top);
  if (options.rollout) {
    std::vector<const Tensor*> patterns;  // [n_layer]
    for (const TraceLayer& layer : trace.layers) patterns.push_back(&layer.pattern);
    trace.rollout = attention_rollout(patterns);
  }
  return trace;
}

Trace trace_text(Model& model, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
                 const TraceOptions& options) {
  Trace trace = trace_text(model, tokens, options);
  for (const std::int32_t token : tokens)
    trace.pieces.push_back(token < tokenizer.size() ? tokenizer.decode(token) : std::string());
  return trace;
}

}  // namespace qkv
