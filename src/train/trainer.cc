// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <numbers>

#include "train/loss_spike.h"
#include "train/trainer_impl.h"

namespace qkv {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t real_targets(std::span<const Batch> micro_batches) {
  std::int64_t count = 0;
  for (const Batch& batch : micro_batches) {
    for (std::int64_t b = 0; b < batch.batch; ++b) {
      const std::int64_t length = batch.lengths.empty() ? batch.ctx : batch.lengths[static_cast<std::size_t>(b)];
      for (std::int64_t t = 0; t < std::min(length, batch.ctx); ++t) {
        count += batch.targets[static_cast<std::size_t>(b * batch.ctx + t)] >= 0;
      }
    }
  }
  return count;
}

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
                                std::to_string(data.training().size()) + " (give more text or a smaller " +
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

void Trainer::Impl::use_config() {
  if (model.dtype() == DType::f32) model.set_operands(config.operands);
  model.set_recompute(config.recompute);
}

void Trainer::Impl::update(const std::vector<Tensor>& gradients, double learning_rate, double gradient_scale) {
  ++state.updates;
  optimizer->update(lora ? lora->values() : model.parameters(), gradients, config,
                    {state.updates, learning_rate, gradient_scale});
  if (lora) lora->merge(model);
}

StepReport Trainer::Impl::step(std::span<const Batch> micro_batches) {
  const auto start = std::chrono::steady_clock::now();
  StepReport report;
  report.step = state.step + 1;
  report.learning_rate = learning_rate_at(config, report.step);
  report.tokens = real_targets(micro_batches);
  if (report.tokens > 0) {
    // One scale for the whole step, so that each real target weighs alike however the step is cut.
    const double scale = 1.0 / static_cast<double>(report.tokens);
    double sum = 0;
    std::int64_t sequences = 0;
    for (const Batch& batch : micro_batches) sequences += batch.batch;
    gradient_sum.begin(sequences);
    use_config();
    model.set_dropout({config.dropout, config.seed, static_cast<std::uint64_t>(report.step)});
    for (const Batch& batch : micro_batches) sum += model.loss_and_gradients(batch, scale, gradient_sum).sum;
    const auto optimiser_start = std::chrono::steady_clock::now();
    const std::vector<Tensor>& gradients = this->gradients();
    report.loss = sum * scale;
    report.grad_norm = global_norm(gradients);
    report.skipped = !std::isfinite(report.loss) || !std::isfinite(report.grad_norm);
    if (!report.skipped) {
      const bool clip = config.grad_clip > 0 && report.grad_norm > config.grad_clip;
      update(gradients, report.learning_rate, clip ? config.grad_clip / report.grad_norm : 1.0);
    }
    report.optimiser_seconds = seconds_since(optimiser_start);
  }
  ++state.step;
  state.tokens += report.tokens;
  if (report.tokens > 0 && !report.skipped) report.spike = spike_of(state.recent_losses, report.loss);
  bad_in_a_row = report.skipped ? bad_in_a_row + 1 : 0;
  report.seconds = seconds_since(start);
  return report;
}

StepReport Trainer::step(std::span<const Batch> micro_batches) {
  const StepReport report = impl_->step(micro_batches);
  if (impl_->bad_in_a_row >= impl_->config.max_bad_steps) {
    throw TrainingDiverged(
        report.step, "[train] step " + std::to_string(report.step) + ": the loss or its gradient is " +
                         "NaN or infinite, for the " + std::to_string(impl_->bad_in_a_row) +
                         "th step in a row; no update since step " + std::to_string(report.step - impl_->bad_in_a_row));
  }
  return report;
}

StepReport Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t ctx = impl_->window(), batch_size = impl_->config.batch_size;
  const std::int64_t sequences = batch_size * impl_->config.grad_accum;
  impl_->tokens.resize(static_cast<std::size_t>(sequences * ctx));
  impl_->targets.resize(static_cast<std::size_t>(sequences * ctx));
  const TokenPart& part = impl_->data.training();
  for (std::int64_t i = 0; i < sequences; ++i) {
    const auto at = static_cast<std::size_t>(i * ctx), count = static_cast<std::size_t>(ctx);
    part.read_window(part.window_start(ctx, impl_->config.seed, impl_->state.next_sequence + i),
                     std::span(impl_->tokens).subspan(at, count), std::span(impl_->targets).subspan(at, count));
  }
  impl_->state.next_sequence += sequences;
  std::vector<Batch> micro_batches;
  for (std::int64_t i = 0; i < impl_->config.grad_accum; ++i) {
    const auto at = static_cast<std::size_t>(i * batch_size * ctx), count = static_cast<std::size_t>(batch_size * ctx);
    micro_batches.push_back({batch_size,
                             ctx,
                             std::span<const std::int32_t>(impl_->tokens).subspan(at, count),
                             std::span<const std::int32_t>(impl_->targets).subspan(at, count),
                             {}});
  }
  const double data_seconds = seconds_since(start);
  StepReport report = step(micro_batches);
  report.data_seconds = data_seconds;
  report.seconds += data_seconds;
  return report;
}

EvalReport Trainer::evaluate() {
  if (!has_validation()) {
    throw std::invalid_argument("[train] expected at least 2 tokens in the validation part; found " +
                                std::to_string(impl_->data.validation().size()));
  }
  impl_->use_config();
  const TokenPart& part = impl_->data.validation();
  const std::int64_t ctx = impl_->window(), batch_size = impl_->config.batch_size;
  const std::int64_t windows = (part.size() - 1 + ctx - 1) / ctx;  // laid end to end
  const std::int64_t wanted = impl_->config.eval_iters > 0 ? impl_->config.eval_iters * batch_size : windows;
  const std::int64_t count = std::min(windows, wanted);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch_size * ctx));   // [batch_size, ctx]
  std::vector<std::int32_t> targets(static_cast<std::size_t>(batch_size * ctx));  // [batch_size, ctx]
  Loss total;
  for (std::int64_t first = 0; first < count; first += batch_size) {
    const std::int64_t rows = std::min(batch_size, count - first);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t window = (first + i) * windows / count;  // spread evenly
      part.read_window(window * ctx,
                       std::span(tokens).subspan(static_cast<std::size_t>(i * ctx), static_cast<std::size_t>(ctx)),
                       std::span(targets).subspan(static_cast<std::size_t>(i * ctx), static_cast<std::size_t>(ctx)));
    }
    const auto used = static_cast<std::size_t>(rows * ctx);
    const Loss loss = impl_->model.loss({rows,
                                         ctx,
                                         std::span<const std::int32_t>(tokens).first(used),
                                         std::span<const std::int32_t>(targets).first(used),
                                         {}});
    total.sum += loss.sum;
    total.count += loss.count;
  }
  EvalReport report;
  report.step = impl_->state.step;
  report.loss = total.mean();
  report.tokens = total.count;
  report.bits_per_byte =
      report.loss * static_cast<double>(part.size()) / (static_cast<double>(part.bytes()) * std::numbers::ln2);
  impl_->state.evaluated_step = report.step;
  report.best = report.loss < impl_->state.best_loss;
  if (report.best) {
    impl_->state.best_loss = report.loss;
    impl_->state.best_step = report.step;
  }
  return report;
}

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
const LoraAdapters* Trainer::adapters() const noexcept { return impl_->lora ? &impl_->lora->adapters() : nullptr; }
const Tokenizer& Trainer::tokenizer() const noexcept { return impl_->tokenizer; }
const TextFacts& Trainer::text_facts() const noexcept { return impl_->facts; }
void Trainer::set_text_facts(TextFacts facts) { impl_->facts = std::move(facts); }
const TokenDataset& Trainer::data() const noexcept { return impl_->data; }
const Optimizer& Trainer::optimizer() const noexcept { return *impl_->optimizer; }

}  // namespace qkv
