// SPDX-License-Identifier: Apache-2.0
// The model behind Python objects: with its tokenizer, standalone or in a trainer, used by one thread at a time.
#pragma once

#include <nanobind/nanobind.h>
#include <qkv/model.h>
#include <qkv/tokenizer.h>
#include <qkv/train.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace qkv::python {

namespace nb = nanobind;

// Serializes access: C++ models and trainers are not thread-safe, and the GIL is released while they compute.
class ModelCore {
 public:
  ModelCore(Model model, std::optional<Tokenizer> words, std::vector<std::int32_t> ends, TextFacts facts = {})
      : tokenizer(std::move(words)),
        end_tokens(std::move(ends)),
        chat_template(std::move(facts.chat_template)),
        named(facts.named),
        own_(std::move(model)) {}
  explicit ModelCore(Trainer trained)
      : tokenizer(trained.tokenizer()),
        chat_template(trained.text_facts().chat_template),
        named(trained.text_facts().named),
        trainer_(std::make_unique<Trainer>(std::move(trained))) {}

  Model& model() {
    if (!trainer_ && !own_) throw std::invalid_argument("[model] expected a model; found one lost by a failed trainer");
    return trainer_ ? trainer_->model() : *own_;
  }
  Trainer& trainer() { return *trainer_; }
  bool in_training() const noexcept { return trainer_ != nullptr; }
  // Moves the model into a trainer; the Python model then refers to the trainer's.
  void train(TokenDataset data, const TrainConfig& config) {
    trainer_ = std::make_unique<Trainer>(std::move(*own_), *tokenizer, std::move(data), config);
    trainer_->set_text_facts(text_facts());
    own_.reset();
  }
  // Runs `work` exclusively, without the GIL. Throws if called from a callback of this model's own work.
  template <class Compute>
  auto compute(Compute&& work) {
    if (is_used_here()) throw std::invalid_argument("[model] a callback must not use the model that called it");
    const nb::gil_scoped_release released;
    const std::lock_guard<std::mutex> alone(mutex_);
    const User user(user_);
    return work();
  }

  // Whether the caller is a callback of this model's work.
  bool is_used_here() const noexcept { return user_.load() == std::this_thread::get_id(); }

  std::optional<Tokenizer> tokenizer;
  std::vector<std::int32_t> end_tokens;
  std::string chat_template;  // empty: none
  NamedTokens named;
  TextFacts text_facts() const { return {end_tokens, chat_template, named}; }

 private:
  struct User {
    explicit User(std::atomic<std::thread::id>& by) : id(by) { id = std::this_thread::get_id(); }
    ~User() { id = std::thread::id(); }
    std::atomic<std::thread::id>& id;
  };

  std::optional<Model> own_;
  std::unique_ptr<Trainer> trainer_;
  std::mutex mutex_;
  std::atomic<std::thread::id> user_{};
};

using SharedModel = std::shared_ptr<ModelCore>;

// The Python class.
struct PythonModel {
  SharedModel core;
};

// Token ids from integers of any kind: [ctx] or [batch, ctx].
struct TokenRows {
  std::int64_t batch = 1, ctx = 0;
  bool one = true;                   // [ctx] was given
  std::vector<std::int32_t> tokens;  // [batch, ctx]
};
TokenRows token_rows(const char* name, nb::handle object);
// Sequences for the model: tokens and targets. Default targets: the next tokens, and -1 at the end of a row or of its
// length.
struct BatchRows {
  BatchRows(nb::handle tokens_given, nb::handle targets_given, nb::handle lengths_given);
  Batch batch() const { return {tokens.batch, tokens.ctx, tokens.tokens, targets, lengths}; }

  TokenRows tokens;
  std::vector<std::int32_t> targets;  // [batch, ctx]
  std::vector<std::int64_t> lengths;  // [batch] or empty
};
// Token ids of a text (including the begin token) or from integers.
std::vector<std::int32_t> prompt_tokens(const ModelCore& core, nb::handle prompt);
// Throws std::invalid_argument if the model has no tokenizer.
const Tokenizer& require_tokenizer(const ModelCore& core);

// Converts a configuration to a Python dict; update() sets the named members and throws std::invalid_argument for an
// unknown name.
nb::dict to_dict(const ModelConfig& config);
void update(ModelConfig& config, const nb::dict& values);
nb::dict to_dict(const TrainConfig& config);
void update(TrainConfig& config, const nb::dict& values);

}  // namespace qkv::python
