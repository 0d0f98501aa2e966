// SPDX-License-Identifier: Apache-2.0
// Inspects a forward pass: a custom sink, a full trace, and the effect of a head. Quoted in docs/inspect.md.
#include <qkv/inspect.h>

#include <cmath>
#include <cstdio>

namespace {

// Prints the mean norm of the residual stream's vectors, per layer.
struct StreamLengths : qkv::TraceSink {
  bool wants(qkv::TraceSite site, std::int64_t) const override { return site == qkv::TraceSite::resid_post; }
  void visit(const qkv::Traced& t) override {
    const auto* x = static_cast<const float*>(t.values.data);  // [batch, ctx, d_model]
    const std::int64_t rows = t.values.shape[0] * t.values.shape[1], d = t.values.shape[2];
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      double square = 0;
      for (std::int64_t j = 0; j < d; ++j) square += double{x[i * d + j]} * x[i * d + j];
      sum += std::sqrt(square);
    }
    std::printf("%s  mean length %.3f\n", qkv::hook_name(t.site, t.layer).c_str(), sum / static_cast<double>(rows));
  }
};

}  // namespace

int main() {
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.d_model = 64;
  config.vocab_size = 257;
  config.ctx_len = 32;
  qkv::Model model(config, 1);
  const std::vector<std::int32_t> tokens = qkv::Tokenizer::bytes().encode("And God said");

  StreamLengths lengths;
  model.logits({1, std::ssize(tokens), tokens, {}, {}}, &lengths);

  const qkv::Trace trace = qkv::trace_text(model, tokens);
  const float* pattern = trace.layers[1].pattern.data<float>();  // [n_head, ctx, ctx]
  std::printf("head 1.0, last query, first key: weight %.3f\n", pattern[(trace.ctx() - 1) * trace.ctx()]);

  const std::vector<qkv::HeadId> head{{1, 0}};
  std::printf("without head 1.0 the next token changes by %.2e nats\n", qkv::head_effect(model, tokens, head).kl);
}
