// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <numbers>

#include "train/loss_spike.h"
#include "train/trainer_impl.h"
#include "train/validation.h"

namespace qkv {
namespace {

void check_window(std::int64_t window, std::int64_t ctx_len) {
  if (window > ctx_len)
    throw std::invalid_argument("[train] expected a window of at most ctx_len = " + std::to_string(ctx_len) +
                                " tokens; found " + std::to_string(window));
}

void check_data(const Model& model, const Tokenizer& tokenizer, const TokenDataset& data, std::int64_t window) {
  check_window(window, model.config().ctx_len);
  const std::int64_t vocab = model.config().vocab_size, ctx = window > 0 ? window : model.config().ctx_len;
  if (tokenizer.size() > vocab || data.vocab_size() > vocab) {
    throw std::invalid_argument("[train] expected a tokenizer and data of at most the model's vocabulary, " +
                                std::to_string(vocab) + "; found " + std::to_string(tokenizer.size()) + " and " +
                                std::to_string(data.vocab_size()));
  }
  if (data.training().window_count(ctx) == 0) {
    throw std::invalid_argument("[train] expected at least " + std::to_string(ctx + 1) +
                                " tokens in the training part, one window of " + (window > 0 ? "" : "ctx_len ") +
                                std::to_string(ctx) + " and the token after it; found " +
                                std::to_string(data.training().size()) + " (use more text or a smaller " +
                                (window > 0 ? "window)" : "ctx_len)"));
  }
}

}  // namespace

Trainer::Trainer(Model model, Tokenizer tokenizer, TokenDataset data, const TrainConfig& config) {
  validate(config);
  check_data(model, tokenizer, data, config.window);
  impl_ = std::make_unique<Impl>(std::move(model), std::move(tokenizer), std::move(data), config);
}

Trainer::Trainer(Model model, Tokenizer tokenizer, TokenDataset data, const TrainConfig& config,
                 LoraAdapters adapters) {
  validate(config);
  check_data(model, tokenizer, data, config.window);
  impl_ = std::make_unique<Impl>(std::move(model), std::move(tokenizer), std::move(data), config, std::move(adapters));
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepReport Trainer::step(std::span<const Batch> micro_batches) { return impl_->step(micro_batches, {}); }

StepReport Trainer::Impl::step(std::span<const Batch> micro_batches, const std::function<bool()>& stop) {
  Impl& run = *this;
  StepReport report = run.training.run(micro_batches, run.config, {run.state.step + 1, run.state.updates + 1}, stop);
  ++run.state.step;
  run.state.tokens += report.tokens;
  if (report.tokens > 0 && !report.skipped) {
    ++run.state.updates;
    report.spike = spike_of(run.state.recent_losses, report.loss);
  }
  run.bad_in_a_row = report.skipped ? run.bad_in_a_row + 1 : 0;
  if (run.bad_in_a_row >= run.config.max_bad_steps) {
    throw TrainingDiverged(
        report.step, "[train] step " + std::to_string(report.step) + ": the loss or its gradient is " +
                         "NaN or infinite in " + std::to_string(run.bad_in_a_row) +
                         " consecutive steps; no update since step " + std::to_string(report.step - run.bad_in_a_row));
  }
  return report;
}

// Loads this process's sequences of the step, batch_size at a time.
StepReport Trainer::step(const std::function<bool()>& stop) {
  const auto start = std::chrono::steady_clock::now();
  Impl& run = *impl_;
  const std::int64_t sequences = run.config.batch_size * run.config.grad_accum;
  const std::int64_t begin = run.training.lanes().begin(sequences), end = run.training.lanes().end(sequences);
  const auto ctx = static_cast<std::size_t>(run.window());
  run.tokens.resize(static_cast<std::size_t>(end - begin) * ctx);
  run.targets.resize(run.tokens.size());
  const std::span<std::int32_t> tokens(run.tokens), targets(run.targets);
  const TokenPart& part = run.data.training();
  std::vector<Batch> micro_batches;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::size_t at = static_cast<std::size_t>(i - begin) * ctx;
    part.read_window(part.window_start(run.window(), run.config.seed, run.state.next_sequence + i),
                     tokens.subspan(at, ctx), targets.subspan(at, ctx));
    if ((i - begin) % run.config.batch_size != 0) continue;
    const std::int64_t batch = std::min(run.config.batch_size, end - i);
    const std::size_t size = static_cast<std::size_t>(batch) * ctx;
    micro_batches.push_back({batch, run.window(), tokens.subspan(at, size), targets.subspan(at, size), {}});
  }
  run.state.next_sequence += sequences;
  const double data_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  StepReport report;
  try {
    report = impl_->step(micro_batches, stop);
  } catch (const StepStopped&) {
    run.state.next_sequence -= sequences;
    throw;
  }
  report.data_seconds = data_seconds;
  report.seconds += data_seconds;
  return report;
}

EvalReport Trainer::evaluate(const std::function<bool()>& stop) {
  Impl& run = *impl_;
  const TokenPart& part = run.data.validation();
  if (!has_validation()) {
    throw std::invalid_argument("[train] expected at least 2 tokens in the validation part; found " +
                                std::to_string(part.size()));
  }
  use_config(run.config, run.model);
  const Loss total = validation_loss(run.model, part, run.window(), run.config.batch_size, run.config.eval_iters, stop);
  EvalReport report;
  report.step = run.state.step;
  report.loss = total.mean();
  report.tokens = total.count;
  report.bits_per_byte =
      report.loss * static_cast<double>(part.size()) / (static_cast<double>(part.bytes()) * std::numbers::ln2);
  run.state.evaluated_step = report.step;
  report.best = report.loss < run.state.best_loss;
  if (report.best) {
    run.state.best_loss = report.loss;
    run.state.best_step = report.step;
  }
  return report;
}

void Trainer::save(const std::string& directory) { impl_->checkpoints.save(directory, impl_->content()); }
void Trainer::start_saving(const std::string& directory) { impl_->checkpoints.begin(directory, impl_->content()); }
std::optional<std::int64_t> Trainer::finish_saving(bool wait) { return impl_->checkpoints.finish(wait); }

bool Trainer::has_validation() const noexcept { return impl_->data.validation().size() >= 2; }
std::int64_t Trainer::steps_done() const noexcept { return impl_->state.step; }
std::int64_t Trainer::skipped_steps() const noexcept { return impl_->state.step - impl_->state.updates; }
std::int64_t Trainer::bad_steps_in_a_row() const noexcept { return impl_->bad_in_a_row; }
std::int64_t Trainer::evaluated_step() const noexcept { return impl_->state.evaluated_step; }
double Trainer::best_loss() const noexcept { return impl_->state.best_loss; }
std::int64_t Trainer::best_step() const noexcept { return impl_->state.best_step; }
void Trainer::set_best(double loss, std::int64_t step) noexcept {
  impl_->state.best_loss = loss;
  impl_->state.best_step = step;
}
const TrainConfig& Trainer::config() const noexcept { return impl_->config; }
void Trainer::set_config(const TrainConfig& config) {
  validate(config);
  check_window(config.window, impl_->model.config().ctx_len);
  if (config.optimizer != impl_->config.optimizer)
    throw std::invalid_argument("[train] optimizer expected " + impl_->config.optimizer +
                                ", which the run began with; found " + config.optimizer);
  impl_->config = config;
}
Model& Trainer::model() noexcept { return impl_->model; }
const LoraAdapters* Trainer::adapters() const noexcept {
  return impl_->training.lora() ? &impl_->training.lora()->adapters() : nullptr;
}
const Tokenizer& Trainer::tokenizer() const noexcept { return impl_->tokenizer; }
const TextFacts& Trainer::text_facts() const noexcept { return impl_->facts; }
void Trainer::set_text_facts(TextFacts facts) { impl_->facts = std::move(facts); }
const TokenDataset& Trainer::data() const noexcept { return impl_->data; }
const Optimizer& Trainer::optimizer() const noexcept { return impl_->training.optimizer(); }

}  // namespace qkv
