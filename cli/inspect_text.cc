// SPDX-License-Identifier: Apache-2.0
#include "inspect_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "qkv/display_text.h"

namespace qkv::cli {
namespace {

constexpr std::size_t kToken = 14;  // width of a token in columns

// [ctx, ctx]
std::span<const float> pattern_of(const Trace& trace, const HeadId& id) {
  const auto size = static_cast<std::size_t>(trace.ctx() * trace.ctx());
  const Tensor& all = trace.layers[static_cast<std::size_t>(id.layer)].pattern;
  return {all.data<float>() + static_cast<std::size_t>(id.head) * size, size};
}

// A share from 0 to 1, as wide as {:.3f}. Values near 0 and 1 are not rounded to them: "<.001", ">.999".
std::string share(double value, int digits = 3) {
  const double step = std::pow(10.0, -digits);
  if (value > 0 && value < step / 2) return fmt::format("<{:.{}f}", step, digits).erase(1, 1);
  if (value < 1 && value >= 1 - step / 2) return fmt::format(">{:.{}f}", 1 - step, digits).erase(1, 1);
  return fmt::format("{:.{}f}", value, digits);
}

std::string piece(const Tokenizer& tokenizer, std::int32_t id) {
  return id < tokenizer.size() ? token_text(tokenizer.decode(id)) : fmt::format("#{}", id);
}

}  // namespace

const char* const kWhatWeightsAreNot =
    "attention weights are mixing coefficients, not evidence of meaning; --ablate shows what a head does\n";

std::string head_name(const HeadId& id) { return fmt::format("{}.{}", id.layer, id.head); }

std::string heads_text(const Trace& trace) {
  std::string text = "head    entropy    first  previous      own   mean attention weight\n";
  for (const HeadId& id : all_heads(trace.config)) {
    const PatternFacts f = mean_pattern_facts(pattern_of(trace, id), trace.ctx());
    text += fmt::format("{:<7} {:>7.3f}  {:>7}  {:>8}  {:>7}\n", head_name(id), f.entropy, share(f.first),
                        share(f.previous), share(f.own));
  }
  return text;
}

std::string head_text(const Trace& trace, const HeadId& id, std::size_t top, Colours colours, std::size_t width) {
  const LayerConfig& c = trace.config.layer(id.layer);
  const std::int64_t ctx = trace.ctx(), group = c.n_head / c.n_kv_head;
  const std::span<const float> pattern = pattern_of(trace, id);  // [ctx, ctx]
  const PatternFacts mean = mean_pattern_facts(pattern, ctx);
  std::string text = fmt::format("layer {}, head {}   q [{}, {}]", id.layer, id.head, ctx, c.head_dim);
  if (group > 1) text += fmt::format(", key head {}", id.head / group);
  text += fmt::format(
      "\nmean entropy {:.3f} nats; mean weight {} on the first token, {} on the previous one, {} on itself\n\n",
      mean.entropy, share(mean.first), share(mean.previous), share(mean.own));
  std::vector<std::string> labels;  // [ctx]
  for (const std::string& bytes : trace.pieces) labels.push_back(token_text(bytes));
  text += heat_map(pattern.data(), ctx, ctx, labels, colours, width);
  text += fmt::format("\n query  {}  entropy  first  top keys\n", left_aligned("token", kToken));
  for (std::int64_t i = 0; i < ctx; ++i) {
    const auto row = pattern.subspan(static_cast<std::size_t>(i * ctx), static_cast<std::size_t>(i + 1));  // [i + 1]
    const PatternFacts f = pattern_facts(row);
    std::string line =
        fmt::format("{:>6}  {}  {:>7.3f}  {:>5}", i, left_aligned(labels[static_cast<std::size_t>(i)], kToken),
                    f.entropy, share(f.first));
    for (const std::int64_t j : top_keys(row, top))
      line +=
          fmt::format("  {} {}:{}", share(row[static_cast<std::size_t>(j)]), j, labels[static_cast<std::size_t>(j)]);
    text += line + "\n";
  }
  return text;
}

std::string lens_text(const Trace& trace, const Tokenizer& tokenizer) {
  std::string text = "next token predicted from each layer (logit lens)\n";
  const std::int64_t row = trace.ctx() - 1;
  for (std::size_t s = 0; s < trace.lens.size(); ++s) {
    const LensStage& stage = trace.lens[s];
    const std::int64_t top = stage.top_ids.shape()[1];
    std::string line = left_aligned(s == 0 ? "  embedding" : fmt::format("  layer {}", s - 1), 12);
    for (std::int64_t i = 0; i < top; ++i)
      line += fmt::format("  {} {}", share(stage.top_probs.data<float>()[row * top + i]),
                          left_aligned(piece(tokenizer, stage.top_ids.data<std::int32_t>()[row * top + i]), 10));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string scores_text(const std::vector<HeadScores>& scores, std::size_t top) {
  struct Kind {
    const char* name;
    double HeadScores::*score;
  };
  constexpr Kind kKinds[] = {{"previous token", &HeadScores::previous_token},
                             {"first token", &HeadScores::first_token},
                             {"duplicate token", &HeadScores::duplicate_token},
                             {"induction", &HeadScores::induction}};
  const std::size_t count = top == 0 ? scores.size() : std::min(top, scores.size());
  std::string text;
  std::vector<std::vector<HeadScores>> ranked;
  for (const Kind& kind : kKinds) {
    text += left_aligned(kind.name, 20);
    ranked.push_back(scores);
    std::stable_sort(ranked.back().begin(), ranked.back().end(),
                     [&](const HeadScores& a, const HeadScores& b) { return a.*kind.score > b.*kind.score; });
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  for (std::size_t i = 0; i < count; ++i) {
    std::string line;
    for (std::size_t k = 0; k < ranked.size(); ++k)
      line += left_aligned(fmt::format("{:<7}{}", head_name({ranked[k][i].layer, ranked[k][i].head}),
                                       share(ranked[k][i].*kKinds[k].score)),
                           20);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string effect_text(const HeadEffect& effect, const Tokenizer& tokenizer, std::size_t top) {
  const auto ranked = [&](const std::vector<float>& probs) {
    std::vector<std::int32_t> ids(probs.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
      return probs[static_cast<std::size_t>(a)] > probs[static_cast<std::size_t>(b)];
    });
    ids.resize(std::min(ids.size(), top));
    return ids;
  };
  std::vector<std::int32_t> shown = ranked(effect.before);
  for (const std::int32_t id : ranked(effect.after))
    if (std::find(shown.begin(), shown.end(), id) == shown.end()) shown.push_back(id);
  std::string text = left_aligned("next token", 16) + "  before   after\n";
  for (const std::int32_t id : shown) {
    const auto i = static_cast<std::size_t>(id);
    text += fmt::format("{}  {}  {}  {:+.4f}\n", left_aligned(piece(tokenizer, id), 16), share(effect.before[i], 4),
                        share(effect.after[i], 4), effect.after[i] - effect.before[i]);
  }
  return text + fmt::format("KL(before || after) {:.6g} nats\n", effect.kl);
}

}  // namespace qkv::cli
