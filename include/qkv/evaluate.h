// SPDX-License-Identifier: Apache-2.0
// Loss and perplexity of a model on a text.
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
  std::int64_t ctx = 0;         // tokens per window; 0: the model's ctx_len, the maximum
  std::int64_t stride = 0;      // between window starts; 0: ctx. Smaller values give tokens more context
  std::int64_t batch_size = 8;  // windows per batch
};

struct TextLoss {
  double nats = 0;             // sum of -ln p over the predicted tokens
  std::int64_t predicted = 0;  // all tokens except the first
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;                 // of the text they encode
  double loss() const noexcept;           // nats / predicted
  double perplexity() const noexcept;     // exp(loss)
  double bits_per_byte() const noexcept;  // loss * tokens / (bytes * ln 2)
};

// Evaluates a token sequence added in parts: each token is predicted from the tokens before it in its window and
// counted once, whatever the stride. The result depends neither on threads nor on how the sequence is split. Memory
// depends only on the batch. The model must outlive it. Not thread-safe.
class Evaluator {
 public:
  // Throws std::invalid_argument for invalid options. add() and finish() throw NonFiniteError.
  Evaluator(Model& model, const EvaluateOptions& options);
  ~Evaluator();
  void add(std::span<const std::int32_t> tokens, std::int64_t bytes);  // ids below the model's vocab_size
  TextLoss finish();                                                   // evaluates the rest and returns the sums

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Called with the amount done so far and in total; may throw to stop.
using EvaluateProgress = std::function<void(std::int64_t done, std::int64_t total)>;
// Evaluates tokens; `done` counts tokens. Throws std::invalid_argument for tokens outside the model's vocabulary.
TextLoss evaluate(Model& model, const TokenPart& tokens, const EvaluateOptions& options,
                  const EvaluateProgress& progress = {});
// Evaluates text, tokenized on the fly with the end token between documents; `done` counts bytes. Throws
// qkv::FileError.
TextLoss evaluate(Model& model, const Tokenizer& tokenizer, const Corpus& corpus, const EvaluateOptions& options,
                  const EvaluateProgress& progress = {});

}  // namespace qkv
