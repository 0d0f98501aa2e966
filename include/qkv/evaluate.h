// SPDX-License-Identifier: Apache-2.0
// How well a model predicts a text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "qkv/corpus.h"
#include "qkv/dataset.h"
#include "qkv/model.h"

namespace qkv {

struct EvaluateOptions {
  std::int64_t ctx = 0;     // tokens of a window; 0: the model's ctx_len, which it may not pass
  std::int64_t stride = 0;  // from one window's start to the next one's; 0: ctx. Smaller: more is seen before a token
  std::int64_t batch_size = 8;  // windows at once
};

struct TextLoss {
  double nats = 0;             // sum of -ln p over the predicted tokens
  std::int64_t predicted = 0;  // all tokens but the first
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;                 // of the text they stand for
  double loss() const noexcept;           // nats / predicted
  double perplexity() const noexcept;     // exp(loss)
  double bits_per_byte() const noexcept;  // loss * tokens / (bytes * ln 2)
};

// Takes a row of tokens in parts and predicts each from those before it in its window; each token is counted once,
// whatever the stride. Sums have a fixed order: the result depends neither on threads nor on how the row is cut. Memory
// grows with a batch only. The model must outlive it; one thread at a time.
class Evaluator {
 public:
  // Throws std::invalid_argument for options that make no sense.
  Evaluator(Model& model, const EvaluateOptions& options);
  ~Evaluator();
  void add(std::span<const std::int32_t> tokens, std::int64_t bytes);  // ids below the model's vocab_size
  TextLoss finish();                                                   // what is left, and the sums

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Told how much is done, of how much; throws to stop.
using EvaluateProgress = std::function<void(std::int64_t done, std::int64_t total)>;
// Of tokens: done counts tokens. Throws std::invalid_argument if the model's vocabulary does not hold them.
TextLoss evaluate(Model& model, const TokenPart& tokens, const EvaluateOptions& options,
                  const EvaluateProgress& progress = {});
// Of text, tokenised as it is read, with the end token between two documents: done counts bytes. Throws qkv::FileError.
TextLoss evaluate(Model& model, const Tokenizer& tokenizer, const Corpus& corpus, const EvaluateOptions& options,
                  const EvaluateProgress& progress = {});

}  // namespace qkv
