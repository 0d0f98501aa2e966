// SPDX-License-Identifier: Apache-2.0
// Scores heads for known behaviors on repeated random tokens.
#include <algorithm>
#include <numeric>

#include "core/random.h"
#include "inspect/checks.h"
#include "model/non_finite.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// Position of the two copies: [begin] r0 ... r(n-1) r0 ... r(n-1).
struct Repeated {
  std::int64_t start, length;  // of the first copy; of each copy
  std::int64_t ctx() const noexcept { return start + 2 * length; }
};

// Accumulates the weights for the scores layer by layer, without keeping matrices.
class ScoreSink : public TraceSink {
 public:
  ScoreSink(const ModelConfig& c, const Repeated& text) : text_(text) {
    for (std::int64_t l = 0; l < c.n_layer; ++l) {
      first_.push_back(sums.size());
      for (std::int64_t h = 0; h < c.layer(l).n_head; ++h) sums.push_back({l, h, 0, 0, 0, 0});
    }
  }
  bool wants(TraceSite site, std::int64_t) const override { return site == TraceSite::pattern; }
  void visit(const Traced& traced) override {
    const Dims& s = traced.values.strides;
    for (std::int64_t b = 0; b < traced.values.shape[0]; ++b)
      for (std::int64_t h = 0; h < traced.values.shape[1]; ++h)
        add(sums[first_[static_cast<std::size_t>(traced.layer)] + static_cast<std::size_t>(h)],
            [&](std::int64_t i, std::int64_t j) {
              const std::int64_t at = b * s[0] + h * s[1] + i * s[2] + j * s[3];
              return traced.values.dtype == DType::f64 ? static_cast<const double*>(traced.values.data)[at]
                                                       : static_cast<const float*>(traced.values.data)[at];
            });
  }

  std::vector<HeadScores> sums;  // all heads, by layer

 private:
  template <class Weight>
  void add(HeadScores& s, const Weight& weight) const {
    const std::int64_t ctx = text_.ctx(), n = text_.length, second = text_.start + n;
    double previous = 0, first = 0, duplicate = 0, induction = 0;
    for (std::int64_t i = 2; i < ctx; ++i) {
      previous += weight(i, i - 1);
      first += weight(i, 0);
    }
    for (std::int64_t i = second; i < ctx; ++i) {
      duplicate += weight(i, i - n);
      induction += weight(i, i - n + 1);
    }
    s.previous_token += previous / static_cast<double>(ctx - 2);
    s.first_token += first / static_cast<double>(ctx - 2);
    s.duplicate_token += duplicate / static_cast<double>(n);
    s.induction += induction / static_cast<double>(n);
  }

  Repeated text_;
  std::vector<std::size_t> first_;  // [n_layer]: index of the layer's first head
};

// The tokens to sample from: the alphabet or the vocabulary, each once, without the begin token.
std::vector<std::int32_t> drawable(const HeadScoreOptions& options, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids = options.alphabet;
  if (ids.empty()) {
    ids.resize(
        static_cast<std::size_t>(options.vocab_limit > 0 ? std::min(options.vocab_limit, vocab_size) : vocab_size));
    std::iota(ids.begin(), ids.end(), 0);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase(ids, options.begin_token);
  if (ids.size() < 2 || ids.front() < 0 || ids.back() >= vocab_size)
    refuse_inspect("at least two tokens below " + std::to_string(vocab_size) + " to sample from",
                   ids.size() < 2 ? std::to_string(ids.size())
                                  : std::to_string(ids.front()) + " ... " + std::to_string(ids.back()));
  return ids;
}

// `count` random tokens, all different if possible.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::vector<std::int32_t> ids, std::uint64_t seed,
                                        std::uint64_t stream) {
  const Random random(seed, stream);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) % ids.size();
    const auto left = static_cast<std::uint64_t>(ids.size() - at);
    std::swap(ids[at], ids[at + random.below(static_cast<std::uint64_t>(i), left)]);
    tokens.push_back(ids[at]);
  }
  return tokens;
}

}  // namespace

std::vector<HeadScores> head_scores(Model& model, const HeadScoreOptions& options) {
  constexpr std::int64_t kLongest = 64, kShortest = 3;
  const ModelConfig& c = model.config();
  const std::vector<std::int32_t> ids = drawable(options, c.vocab_size);
  Repeated text{options.begin_token >= 0 ? 1 : 0, options.length};
  if (text.length == 0)
    text.length = std::min({kLongest, (c.ctx_len - text.start) / 2, static_cast<std::int64_t>(ids.size())});
  if (text.length < kShortest || text.ctx() > c.ctx_len)
    refuse_inspect("at least 3 random tokens that fit twice into ctx_len = " + std::to_string(c.ctx_len),
                   std::to_string(text.length));
  if (options.sequences < 1) refuse_inspect("at least 1 sequence", std::to_string(options.sequences));
  ScoreSink sink(c, text);
  for (std::int64_t s = 0; s < options.sequences; ++s) {
    const std::vector<std::int32_t> drawn =
        random_tokens(text.length, ids, options.seed, static_cast<std::uint64_t>(s));
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(text.start), options.begin_token);
    for (int copy = 0; copy < 2; ++copy) tokens.insert(tokens.end(), drawn.begin(), drawn.end());
    require_finite("inspect", "logits", model, model.logits({1, text.ctx(), tokens, {}, {}}, &sink));
  }
  for (HeadScores& s : sink.sums)
    for (double* sum : {&s.previous_token, &s.first_token, &s.duplicate_token, &s.induction})
      *sum /= static_cast<double>(options.sequences);
  return sink.sums;
}

}  // namespace qkv
