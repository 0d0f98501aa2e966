// SPDX-License-Identifier: Apache-2.0
// Records one forward pass over a text.
#include <algorithm>

#include "inspect/checks.h"
#include "model/non_finite.h"
#include "os/machine.h"
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

// Forwards one pass to two sinks.
class Both : public TraceSink {
 public:
  Both(TraceSink* first, TraceSink& second) : first_(first), second_(second) {}
  bool wants(TraceSite site, std::int64_t layer) const override {
    return (first_ && first_->wants(site, layer)) || second_.wants(site, layer);
  }
  void visit(const Traced& traced) override {
    if (first_ && first_->wants(traced.site, traced.layer)) first_->visit(traced);
    if (second_.wants(traced.site, traced.layer)) second_.visit(traced);
  }

 private:
  TraceSink* first_;  // may be null
  TraceSink& second_;
};

std::vector<TraceSite> sites_of(const TraceOptions& options) {
  std::vector<TraceSite> sites = options.sites;
  if (sites.empty()) return sites;
  if (options.lens_top > 0) sites.insert(sites.end(), {TraceSite::resid_pre, TraceSite::resid_post});
  if (options.rollout) sites.push_back(TraceSite::pattern);
  return sites;
}

std::string megabytes(std::int64_t bytes) { return std::to_string(bytes / 1'000'000); }

}  // namespace

std::int64_t trace_bytes(const ModelConfig& c, std::int64_t ctx, const TraceOptions& options) {
  const std::vector<TraceSite> sites = sites_of(options);
  const auto recorded = [&](TraceSite site) {
    return sites.empty() || std::find(sites.begin(), sites.end(), site) != sites.end();
  };
  std::int64_t kinds = 0;  // number of matrices [n_head, ctx, ctx] kept per layer
  for (const TraceSite site : {TraceSite::products, TraceSite::scaled, TraceSite::scores, TraceSite::pattern})
    if (recorded(site)) ++kinds;
  std::int64_t heads = 0, most = 0;  // total over layers; maximum per layer
  for (std::int64_t l = 0; l < c.n_layer; ++l) {
    heads += c.layer(l).n_head;
    most = std::max(most, c.layer(l).n_head);
  }
  const bool matrices = kinds > 0 || options.also;  // one layer's matrices exist in addition to the copies
  const std::int64_t squares = heads * kinds + (matrices ? 4 * most : 0) + (options.rollout ? c.n_layer : 0);
  return 4 * ctx * (ctx * squares + 2 * c.vocab_size);
}

Trace trace_text(Model& model, std::span<const std::int32_t> tokens, const TraceOptions& options) {
  if (tokens.empty()) refuse_inspect("a text of at least one token", "none");
  if (options.lens_top < 0) refuse_inspect("lens_top of at least 0", std::to_string(options.lens_top));
  const std::int64_t bytes = trace_bytes(model.config(), std::ssize(tokens), options), free = available_memory();
  if (free > 0 && bytes > free)
    refuse_inspect("a text whose trace fits in " + megabytes(free) + " MB of free memory",
                   megabytes(bytes) + " MB, mostly attention matrices of " + std::to_string(tokens.size()) +
                       " tokens: use a shorter text or fewer sites");
  TraceRecorder recorder(model.config().n_layer, sites_of(options));
  Both sink(options.also, recorder);
  const Batch batch{1, static_cast<std::int64_t>(tokens.size()), tokens, {}, {}};
  Trace trace;
  trace.config = model.config();
  trace.logits = as_rows_f32(model.logits(batch, &sink));
  require_finite("inspect", "logits", model, trace.logits);
  trace.tokens.assign(tokens.begin(), tokens.end());
  trace.layers = std::move(recorder.layers);
  trace.around = std::move(recorder.around);
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
