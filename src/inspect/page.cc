// SPDX-License-Identifier: Apache-2.0
// Converts a trace to the data of the inspection page.
#include "page/inspect_page.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "inspect/checks.h"
#include "inspect/page_model.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

std::string text_of(const Tokenizer& tokenizer, std::int32_t id) {
  if (id >= 0 && id < tokenizer.size()) return tokenizer.decode(id);
  return std::string("#").append(std::to_string(id));
}

InspectLayer layer_of(const TraceLayer& layer, const LayerConfig& c, std::int64_t ctx) {
  const bool turned = layer.rot_q.size() > 0 && layer.rot_k.size() > 0;  // the inputs of the scores
  const Tensor& q = turned ? layer.rot_q : layer.q;                      // [ctx, n_head, head_dim]
  const Tensor& k = turned ? layer.rot_k : layer.k;                      // [ctx, n_kv_head, head_dim]
  require_f32("q", q, {ctx, c.n_head, c.head_dim});
  require_f32("k", k, {ctx, c.n_kv_head, c.head_dim});
  require_f32("v", layer.v, {ctx, c.n_kv_head, c.v_head_dim});
  require_f32("z", layer.z, {ctx, c.n_head, c.v_head_dim});
  require_f32("scaled", layer.scaled, {c.n_head, ctx, ctx});
  require_f32("pattern", layer.pattern, {c.n_head, ctx, ctx});
  return {q.data(), k.data(), layer.v.data(), layer.z.data(), layer.scaled.data(), layer.pattern.data()};
}

// "model" from "runs/model/", for the title.
std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

void add_lens(InspectPage& page, const Trace& trace, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> named;
  for (const LensStage& stage : trace.lens) {
    page.lens.push_back({stage.top_ids.data<std::int32_t>(), stage.top_probs.data(), stage.next_prob.data(),
                         stage.last_prob.data(), stage.entropy.data()});
    page.lens_top = stage.top_ids.shape()[1];
    named.insert(named.end(), stage.top_ids.data<std::int32_t>(),
                 stage.top_ids.data<std::int32_t>() + stage.top_ids.size());
  }
  named.insert(named.end(), trace.tokens.begin(), trace.tokens.end());
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  for (const std::int32_t id : named) page.words.emplace_back(id, text_of(tokenizer, id));
}

}  // namespace

void require_page_model(const ModelConfig& c) {
  const LayerConfig& first = c.layer(0);
  for (std::int64_t l = 0; l < c.n_layer; ++l) {
    const LayerConfig& one = c.layer(l);
    const auto refuse = [l](const char* expected, const char* found) {
      throw std::invalid_argument(std::string("[inspect_page] expected ") + expected + "; found " + found +
                                  " in layer " + std::to_string(l));
    };
    if (one.n_head != first.n_head || one.n_kv_head != first.n_kv_head)
      refuse("the same number of heads in every layer", "a different number");
    if (one.head_dim != first.head_dim || one.v_head_dim != first.v_head_dim)
      refuse("the same head size in every layer", "a different size");
    if ((one.positions == Positions::rotary) != (first.positions == Positions::rotary))
      refuse("rotary positions in all layers or none", "a difference");
    constexpr const char* kScores = "scores of q . k / sqrt(head_dim) under a causal mask";
    if (one.window_left >= 0) refuse(kScores, "a window");
    if (one.attention_scale != 0) refuse(kScores, "an attention_scale");
    if (one.softcap != 0) refuse(kScores, "a softcap");
    if (one.alibi) refuse(kScores, "ALiBi");
    if (one.sinks) refuse(kScores, "sinks");
  }
}

std::string inspect_page(const Trace& trace, const Tokenizer& tokenizer, const InspectPageOptions& options) {
  InspectPage page;
  const ModelConfig& config = trace.config;
  require_page_model(config);
  page.model = last_part(trace.model);
  const LayerConfig& layer = config.layer(0);
  page.n_head = layer.n_head;
  page.n_kv_head = layer.n_kv_head;
  page.d_k = layer.head_dim;
  page.d_v = layer.v_head_dim;
  page.rotary = layer.positions == Positions::rotary;
  page.facts = {{"d_model", std::to_string(config.d_model)},
                {"tokens in the vocabulary", std::to_string(config.vocab_size)}};
  page.ids = trace.tokens;
  for (const std::int32_t id : trace.tokens) page.tokens.push_back(text_of(tokenizer, id));
  for (const TraceLayer& one : trace.layers) page.layers.push_back(layer_of(one, layer, trace.ctx()));
  add_lens(page, trace, tokenizer);
  if (trace.rollout.size() > 0) {
    require_f32("rollout", trace.rollout, {config.n_layer, trace.ctx(), trace.ctx()});
    page.rollout = trace.rollout.data();
  }
  for (const HeadScores& s : trace.head_scores) {
    page.head_scores.push_back({s.previous_token, s.first_token, s.duplicate_token, s.induction});
  }
  for (const HeadId& head : options.first) page.first.emplace_back(head.layer, head.head);
  return inspect_html(page, options.most_bytes);
}

}  // namespace qkv
