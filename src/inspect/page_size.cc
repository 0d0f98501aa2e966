// SPDX-License-Identifier: Apache-2.0
// Predicts from the start of a long text whether its page fits in the size limit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "inspect/page_model.h"
#include "page/inspect_page.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// Accumulates the minimum size of the weights layer by layer, without keeping matrices.
class WeightBytes : public TraceSink {
 public:
  bool wants(TraceSite site, std::int64_t) const override { return site == TraceSite::pattern; }
  void visit(const Traced& traced) override {
    const std::int64_t heads = traced.values.shape[1], ctx = traced.values.shape[2];
    const Dims& s = traced.values.strides;
    std::vector<float> pattern(static_cast<std::size_t>(ctx * ctx));  // [ctx, ctx]
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < ctx; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          const std::int64_t at = h * s[1] + i * s[2] + j * s[3];
          pattern[static_cast<std::size_t>(i * ctx + j)] =
              traced.values.dtype == DType::f64 ? static_cast<float>(static_cast<const double*>(traced.values.data)[at])
                                                : static_cast<const float*>(traced.values.data)[at];
        }
      bytes += least_weight_bytes(pattern.data(), static_cast<std::size_t>(ctx));
    }
  }

  std::size_t bytes = 0;
};

// About how many tokens fit in a page if the weights of `read` tokens take `bytes`: weights grow quadratically,
// log-sums (4 bytes per head and token) and the lens (105 characters per stage and token) linearly.
std::int64_t tokens_that_fit(const ModelConfig& c, std::int64_t read, double bytes, double most) {
  const double square = bytes / static_cast<double>(read * read) * (1 + 1 / static_cast<double>(c.layer(0).n_head));
  const double each =
      5.0 * static_cast<double>(c.n_layer * c.layer(0).n_head) + 105.0 * static_cast<double>(c.n_layer + 1) + 30;
  constexpr double kScripts = 160'000;
  const double room = std::max(most - kScripts, 0.0);
  const double tokens = 2 * room / (each + std::sqrt(each * each + 4 * square * room));
  return static_cast<std::int64_t>(tokens) / 10 * 10;
}

}  // namespace

void require_page_fits(Model& model, std::span<const std::int32_t> tokens, const InspectPageOptions& options) {
  const ModelConfig& c = model.config();
  require_page_model(c);
  const std::int64_t ctx = std::ssize(tokens);
  const double most = static_cast<double>(options.most_bytes);
  constexpr double kBits = 3;          // typical size of a weight in a page
  constexpr std::int64_t kFirst = 64;  // tokens
  const double weights =
      static_cast<double>(c.n_layer * c.layer(0).n_head) * static_cast<double>(ctx) * static_cast<double>(ctx) / 2;
  if (weights * kBits / 8 <= most) return;
  for (std::int64_t read = kFirst; read < ctx; read *= 2) {
    WeightBytes sink;
    model.logits({1, read, tokens.first(static_cast<std::size_t>(read)), {}, {}}, &sink);
    if (sink.bytes <= options.most_bytes) continue;
    const double found = static_cast<double>(sink.bytes);
    throw std::invalid_argument(fmt::format(
        "[inspect_page] expected weights that fit in {:.1f} MB; found that the first {} of {} tokens need at "
        "least {:.1f} MB: use a text of about {} tokens",
        most / 1e6, read, ctx, found / 1e6, tokens_that_fit(c, read, found, most)));
  }
}

}  // namespace qkv
