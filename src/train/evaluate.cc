// SPDX-License-Identifier: Apache-2.0
#include "qkv/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/non_finite.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::int64_t kTokensAtOnce = std::int64_t{1} << 16;

[[noreturn]] void fail(const std::string& expected, std::int64_t found) {
  throw std::invalid_argument("[evaluate] expected " + expected + "; found " + std::to_string(found));
}

EvaluateOptions settled(EvaluateOptions options, std::int64_t ctx_len) {
  if (options.ctx == 0) options.ctx = ctx_len;
  if (options.ctx < 1 || options.ctx > ctx_len)
    fail("a context of 1 to the model's " + std::to_string(ctx_len), options.ctx);
  if (options.stride == 0) options.stride = options.ctx;
  if (options.stride < 1 || options.stride > options.ctx)
    fail("a stride of 1 to the context's " + std::to_string(options.ctx), options.stride);
  if (options.batch_size < 1) fail("a batch of at least 1", options.batch_size);
  return options;
}

}  // namespace

double TextLoss::loss() const noexcept { return predicted > 0 ? nats / static_cast<double>(predicted) : 0; }
double TextLoss::perplexity() const noexcept { return std::exp(loss()); }
double TextLoss::bits_per_byte() const noexcept {
  return bytes > 0 ? loss() * static_cast<double>(tokens) / (static_cast<double>(bytes) * std::numbers::ln2) : 0;
}

struct Evaluator::State {
  State(Model& m, const EvaluateOptions& o) : model(m), options(settled(o, m.config().ctx_len)) {}

  // Windows start every `stride` tokens; `held` begins with the next one.
  void run(bool last) {
    while (true) {
      const auto have = static_cast<std::int64_t>(held.size());
      // Complete windows with their last target; at the end also one that has any new targets.
      std::int64_t rows = have > options.ctx ? (have - options.ctx - 1) / options.stride + 1 : 0;
      if (!last && rows < options.batch_size) return;
      if (last && rows < options.batch_size && has_new_target(rows)) ++rows;
      rows = std::min(rows, options.batch_size);
      if (rows == 0) return;
      run_rows(rows);
      held.erase(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(std::min(have, rows * options.stride)));
    }
  }

  // Number of a window's targets that the previous window counted.
  std::int64_t seen(std::int64_t row) const { return first && row == 0 ? 0 : options.ctx - options.stride; }
  bool has_new_target(std::int64_t row) const {
    return static_cast<std::int64_t>(held.size()) > row * options.stride + seen(row) + 1;
  }

  void run_rows(std::int64_t rows) {
    const std::int64_t ctx = options.ctx, have = static_cast<std::int64_t>(held.size());
    inputs.assign(static_cast<std::size_t>(rows * ctx), 0);
    targets.assign(static_cast<std::size_t>(rows * ctx), -1);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t t = 0; t < ctx && row * options.stride + t + 1 < have; ++t) {
        const std::int64_t at = row * options.stride + t;
        inputs[static_cast<std::size_t>(row * ctx + t)] = held[static_cast<std::size_t>(at)];
        if (t >= seen(row)) targets[static_cast<std::size_t>(row * ctx + t)] = held[static_cast<std::size_t>(at + 1)];
      }
    }
    const Loss loss = model.loss({rows, ctx, inputs, targets, {}});
    if (!std::isfinite(loss.sum))
      throw NonFiniteError("[evaluate] expected a finite loss; found NaN or infinity: " + non_finite_cause(model));
    total.nats += loss.sum;
    total.predicted += loss.count;
    first = false;
  }

  Model& model;
  EvaluateOptions options;
  bool first = true;                  // no window has been evaluated yet
  std::vector<std::int32_t> held;     // tokens from the start of the next window
  std::vector<std::int32_t> inputs;   // [rows, ctx]
  std::vector<std::int32_t> targets;  // [rows, ctx]
  TextLoss total;
};

Evaluator::Evaluator(Model& model, const EvaluateOptions& options) : state_(std::make_unique<State>(model, options)) {}
Evaluator::~Evaluator() = default;

void Evaluator::add(std::span<const std::int32_t> tokens, std::int64_t bytes) {
  const std::int64_t vocabulary = state_->model.config().vocab_size;
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary)
      fail("tokens of the model's vocabulary of " + std::to_string(vocabulary), token);
  state_->held.insert(state_->held.end(), tokens.begin(), tokens.end());
  state_->total.tokens += static_cast<std::int64_t>(tokens.size());
  state_->total.bytes += bytes;
  state_->run(false);
}

TextLoss Evaluator::finish() {
  state_->run(true);
  state_->held.clear();
  return state_->total;
}

TextLoss evaluate(Model& model, const TokenPart& tokens, const EvaluateOptions& options,
                  const EvaluateProgress& progress) {
  Evaluator evaluator(model, options);
  std::vector<std::int32_t> part;
  for (std::int64_t at = 0; at < tokens.size(); at += kTokensAtOnce) {
    part.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, tokens.size() - at)));
    tokens.read(at, part);
    for (std::span<const std::int32_t> rest = part; !rest.empty();) {  // in parts, to report progress per batch
      const std::size_t count = std::min(rest.size(), static_cast<std::size_t>(4096));
      evaluator.add(rest.first(count), 0);
      rest = rest.subspan(count);
      if (progress) progress(at + static_cast<std::int64_t>(part.size() - rest.size()), tokens.size());
    }
  }
  TextLoss loss = evaluator.finish();
  loss.bytes = tokens.bytes();
  return loss;
}

TextLoss evaluate(Model& model, const Tokenizer& tokenizer, const Corpus& corpus, const EvaluateOptions& options,
                  const EvaluateProgress& progress) {
  Evaluator evaluator(model, options);
  TextEncoder encoder(tokenizer);
  std::vector<std::int32_t> ids;
  const std::int32_t begin = tokenizer.begin_token() == tokenizer.end_token() ? -1 : tokenizer.begin_token();
  std::int64_t done = 0;
  corpus.read_text(CorpusPart::all, [&](std::string_view text, bool begins) {
    ids.clear();
    if (begins && done > 0 && tokenizer.end_token() >= 0) ids.push_back(tokenizer.end_token());
    if (begins && begin >= 0) ids.push_back(begin);
    encoder.encode(text, ids, SpecialTokens::as_text, !begins);
    done += static_cast<std::int64_t>(text.size());
    std::int64_t bytes = static_cast<std::int64_t>(text.size());
    for (std::span<const std::int32_t> rest = ids; !rest.empty();) {
      const std::size_t count = std::min(rest.size(), static_cast<std::size_t>(4096));
      evaluator.add(rest.first(count), std::exchange(bytes, 0));
      rest = rest.subspan(count);
      const auto left =
          static_cast<double>(text.size()) * static_cast<double>(rest.size()) / static_cast<double>(ids.size());
      if (progress) progress(done - static_cast<std::int64_t>(left), corpus.bytes());
    }
    return true;
  });
  return evaluator.finish();
}

}  // namespace qkv
