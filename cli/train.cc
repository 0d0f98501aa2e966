// SPDX-License-Identifier: Apache-2.0
// qkv train: trains a model on text.
#include "qkv/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli.h"
#include "corpus_options.h"
#include "number_options.h"
#include "qkv/error.h"
#include "qkv/generate.h"
#include "qkv/interrupt.h"
#include "qkv/measure.h"
#include "qkv/model_file.h"
#include "qkv/repetition.h"
#include "train_data.h"
#include "train_memory.h"
#include "train_model.h"
#include "train_page.h"
#include "train_profile.h"
#include "train_progress.h"
#include "train_settings.h"

namespace {

namespace fs = std::filesystem;
using namespace qkv::cli;
using qkv::FileError;

// Removes the directory that this run created if it ends before its first checkpoint.
class FreshDirectory {
 public:
  explicit FreshDirectory(const std::string& path) : path_(path), made_(!fs::exists(path)) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) throw FileError(path, "cannot be created: " + error.message());
  }
  FreshDirectory(const FreshDirectory&) = delete;
  FreshDirectory& operator=(const FreshDirectory&) = delete;
  ~FreshDirectory() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  void keep() noexcept { made_ = false; }

 private:
  std::string path_;
  bool made_;
};

void warn(const std::string& text) { print_error("qkv: warning: " + text + "\n"); }

// The compute dtype of --dtype, if this CPU supports it; other devices have a fixed one.
qkv::DType compute_dtype_of(const TrainSettings& settings, std::string_view device) {
  if (device != "cpu") {
    if (settings.dtype != "auto")
      throw UsageError(fmt::format("--dtype is for --device cpu; {} computes in f64", device));
    return qkv::DType::f32;
  }
  if (settings.dtype == "f32" || (settings.dtype == "auto" && !qkv::fast_bf16())) return qkv::DType::f32;
  if (qkv::fast_bf16()) return qkv::DType::bf16;
  warn("this processor has no bf16 instructions; training in f32");
  return qkv::DType::f32;
}

// Wider models need a smaller learning rate, and pretrained models a still smaller one.
double usual_learning_rate(const qkv::ModelConfig& model, bool pretrained) {
  constexpr double kTimesWidth = 0.384, kMax = 4e-3;  // 2e-3 at d_model 192, 5e-4 at 768
  return std::min(kTimesWidth / static_cast<double>(model.d_model), kMax) / (pretrained ? 5 : 1);
}

// Without a final norm, a random model overshoots if early steps are large: the layers encode token frequencies in a
// vector shared by all tokens, its norm is unbounded, and momentum makes it too long (docs/training.md). So the warm-up
// is longer, and a short run has a lower peak.
void use_gentle_warmup(qkv::TrainConfig& config) {
  constexpr std::int64_t kEnough = 400, kMax = 500;  // steps
  config.warmup_steps = std::clamp<std::int64_t>(config.steps / 3, 1, kMax);
  config.learning_rate *= std::min(1.0, static_cast<double>(config.warmup_steps) / kEnough);
}

// The adapters of --lora for the --init model.
std::optional<qkv::LoraAdapters> new_adapters(const TrainSettings& settings, const std::optional<InitialModel>& initial,
                                              std::uint64_t seed) {
  const std::optional<qkv::LoraOptions> options = lora_options(settings.lora);
  if (!options) return std::nullopt;
  if (!initial) throw UsageError("--lora needs --init, the model to adapt");
  try {
    qkv::LoraAdapters adapters = qkv::make_lora(initial->config(), *options, seed);
    adapters.base = settings.init;
    return adapters;
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

qkv::Trainer start(const TrainSettings& settings) {
  if (settings.data.empty()) throw UsageError("--data is required: the training text");
  switch (qkv::inspect_run_directory(settings.out)) {
    case qkv::RunDirectory::resumable:
      throw FileError(settings.out, "already contains a run; continue it with --resume, or choose another directory");
    case qkv::RunDirectory::occupied:
      throw FileError(settings.out, "exists and is not a qkv run; choose a new directory");
    case qkv::RunDirectory::absent:
    case qkv::RunDirectory::unfinished_start:
      break;
  }
  qkv::TrainConfig config;
  settings.apply(config);
  const std::string device = settings.device.empty() ? "cpu" : settings.device;
  config.compute_dtype = compute_dtype_of(settings, device);
  if (device != "cpu" && !settings.lora.shape.empty()) throw UsageError("--lora needs --device cpu; found " + device);
  asked([&] {  // the default learning rate is not known yet
    qkv::TrainConfig early = config;
    early.learning_rate = std::max(early.learning_rate, early.min_lr);
    qkv::validate(early);
  });
  std::optional<InitialModel> initial = InitialModel::open(settings);
  const auto model_of = [&](std::int64_t vocabulary) {
    return initial ? initial->config() : asked_model(settings, qkv::preset(kDefaultPreset), vocabulary);
  };
  const qkv::ModelConfig shape = asked([&] { return model_of(257); });  // rejects invalid options before the long work
  std::optional<qkv::LoraAdapters> adapters = new_adapters(settings, initial, config.seed);
  config.learning_rate = usual_learning_rate(shape, initial && !adapters);
  if (!initial && !shape.final_norm) use_gentle_warmup(config);
  settings.apply(config);  // given options take precedence
  asked([&] { qkv::validate(config); });
  std::optional<FreshDirectory> directory;
  TrainData data = train_data(
      settings, config.window > 0 ? config.window : shape.ctx_len, initial ? &initial->tokenizer() : nullptr,
      [&](std::int64_t vocabulary) {
        if (settings.memory_check && device == "cpu")
          check_memory(model_of(vocabulary), config, adapters ? &*adapters : nullptr,
                       initial ? "--seq-len" : "--ctx-len");
      },
      [&] { directory.emplace(settings.out); });
  qkv::Model model = initial ? initial->take(device) : qkv::Model(model_of(data.tokenizer.size()), config.seed, device);
  qkv::Trainer trainer =
      adapters ? qkv::Trainer(std::move(model), std::move(data.tokenizer), std::move(data.tokens), config,
                              std::move(*adapters))
               : qkv::Trainer(std::move(model), std::move(data.tokenizer), std::move(data.tokens), config);
  if (initial) trainer.set_text_facts(initial->text_facts());
  trainer.save(settings.out);  // the run can be resumed from here on
  directory->keep();
  return trainer;
}

void check_same_model(const TrainSettings& settings, const qkv::Trainer& trainer, const qkv::ModelConfig& stored) {
  check_same_shape(settings, stored, "a run's model cannot change; leave out the model options, or start a new run");
  if (const auto lora = lora_options(settings.lora)) {
    const qkv::LoraAdapters* adapters = trainer.adapters();
    if (!settings.lora.targets.empty() || !adapters || adapters->rank != lora->rank || adapters->alpha != lora->alpha)
      throw UsageError("a run's adapters cannot change; leave out --lora, or start a new run");
  }
  if (settings.tokenizer.empty()) return;
  const std::int64_t size = trainer.tokenizer().size();
  bool fits = false;
  if (settings.tokenizer == "bytes") {
    fits = size == 257;
  } else if (const auto wanted = learnt_size(settings.tokenizer)) {
    fits = size == *wanted || (257 < size && size < *wanted);  // a short text gives fewer
  } else {
    fits = size == load_tokenizer(settings.tokenizer).size();
  }
  if (!fits) throw UsageError("a run's tokenizer cannot change; leave out --tokenizer, or start a new run");
}

// Another number of steps does not raise the learning rate of a run that goes on; where other options do, it is said.
std::string schedule_notes(const qkv::Trainer& trainer, qkv::TrainConfig& config) {
  const qkv::TrainConfig& planned = trainer.config();
  const std::int64_t done = trainer.steps_done();
  std::string notes;
  if (qkv::keep_planned_schedule(planned, done, config))
    notes = fmt::format(
        "note: the learning rate schedule ends at step {}, as planned, and stays at {:.2e} from there on "
        "(--decay-steps {} stretches it, which raises the rate)\n",
        config.decay_steps, qkv::learning_rate_at(config, config.decay_steps), config.steps);
  if (qkv::rate_rises(planned, done, config))
    notes += fmt::format("note: the learning rate rises from {:.2e} at step {} to {:.2e}, as these options ask\n",
                         qkv::learning_rate_at(planned, std::max<std::int64_t>(1, done)), done,
                         qkv::highest_rate_from(config, done + 1));
  return notes;
}

qkv::Trainer resume(const TrainSettings& settings) {
  if (!settings.init.empty()) throw UsageError("--resume continues the run's own model; leave out --init");
  qkv::load_train_config(settings.out);  // reports a missing run before reading the text
  std::vector<std::string> refused;
  qkv::Trainer trainer = qkv::Trainer::resume(settings.out, data_to_resume(settings), &refused);
  for (const std::string& what : refused)
    warn(fmt::format("checkpoint rejected: {}; continuing from step {}", what, trainer.steps_done()));
  check_same_model(settings, trainer, trainer.model().config());
  const std::string device(trainer.model().device());
  if (!settings.device.empty() && settings.device != device)
    throw UsageError(fmt::format("a run's device cannot change: its parameters are on {}; leave out --device", device));
  qkv::TrainConfig config = trainer.config();
  settings.apply(config);
  if (config.steps < trainer.steps_done())
    throw UsageError(fmt::format("--steps {} is less than the {} steps already done in {}", config.steps,
                                 trainer.steps_done(), settings.out));
  if (settings.dtype != "auto") config.compute_dtype = compute_dtype_of(settings, device);
  const std::string notes = schedule_notes(trainer, config);
  asked([&] { trainer.set_config(config); });
  if (settings.memory_check && device == "cpu")
    check_memory(trainer.model().config(), config, trainer.adapters(), "--seq-len");
  print(fmt::format("resuming after step {} of {}\n{}", trainer.steps_done(), config.steps, notes));
  return trainer;
}

// Tokens per training sequence.
std::int64_t window_of(qkv::Trainer& trainer) {
  return trainer.config().window > 0 ? trainer.config().window : trainer.model().config().ctx_len;
}

void describe(qkv::Trainer& trainer) {
  const qkv::ModelConfig& c = trainer.model().config();
  const qkv::TokenDataset& data = trainer.data();
  print(fmt::format("model: {} parameters; {}, {}, d_model {}, context {}, vocabulary {}\n", qkv::parameter_count(c),
                    counted(c.n_layer, "layer"), counted(c.n_head, "head"), c.d_model, c.ctx_len, c.vocab_size));
  print(fmt::format("data: {} training tokens ({:.2f} bytes per token), {} validation tokens; {} steps of {} tokens\n",
                    data.training().size(),
                    static_cast<double>(data.training().bytes()) / static_cast<double>(data.training().size()),
                    data.validation().size(), trainer.config().steps,
                    trainer.config().batch_size * trainer.config().grad_accum * window_of(trainer)));
  print(exports_text(c, trainer.tokenizer()) + "\n");
  if (trainer.adapters()) print("adapters: " + describe_lora(*trainer.adapters()) + "; other parameters are frozen\n");
  if (trainer.model().device() == "cpu") print(memory_text(c, trainer.config(), trainer.adapters()) + "\n");
  if (!trainer.has_validation()) print("note: no validation text, so no evaluations\n");
}

// Prints the progress of a run.
class Reporter {
 public:
  Reporter(qkv::Trainer& trainer, const TrainSettings& settings, double flops_per_token, double peak)
      : trainer_(trainer),
        settings_(settings),
        flops_per_token_(flops_per_token),
        peak_(peak),
        progress_("training", static_cast<double>(trainer.steps_done()), false) {}

  qkv::TrainObserver observer() {
    qkv::TrainObserver observer;
    observer.on_step = [this](const qkv::StepReport& report) { step(report); };
    observer.on_evaluation = [this](const qkv::EvalReport& report) { evaluation(report); };
    observer.on_sample = [this](std::int64_t at) { return sample(at); };
    observer.on_warning = [this](const std::string& what) { warning(what); };
    observer.stop_requested = [] { return qkv::interrupt_requested(); };
    observer.drop_step = [this] { return drops_step(); };
    announce();
    return observer;
  }
  void line(const std::string& text) {
    progress_.hide();
    print(text + "\n");
  }
  void warning(const std::string& what) {
    progress_.hide();
    warn(what);
  }
  double seconds() const { return progress_.seconds(); }
  TrainProfile& profile() { return profile_; }
  void keep(TrainPage& page) { page_ = &page; }  // updated during the run

 private:
  void step(const qkv::StepReport& report) {
    const std::int64_t steps = trainer_.config().steps;
    if (page_) page_->after_step();
    profile_.add(report);
    seconds_ += report.seconds;
    tokens_ += report.tokens;
    ++count_;
    const bool last = report.step == steps || report.step == settings_.stop_after;
    if (report.skipped) line(fmt::format("step {}: loss or gradient is NaN or infinite; skipped", report.step));
    if (report.spike > 0) {
      line(fmt::format("step {}: loss spike {:.4f}, {:.1f} standard deviations above recent losses", report.step,
                       report.loss, report.spike));
    }
    if (report.step == 1 || report.step % trainer_.config().log_interval == 0 || last) {
      const double rate = static_cast<double>(tokens_) / seconds_;
      std::string text = fmt::format("step {:>{}}/{}  loss {:.4f}  grad {:.3f}  lr {:.2e}  {:.1f} ms  {:.0f} tokens/s",
                                     report.step, std::to_string(steps).size(), steps, report.loss, report.grad_norm,
                                     report.learning_rate, seconds_ / count_ * 1e3, rate);
      if (peak_ > 0) text += fmt::format("  {:.1f} % of peak", 100 * rate * flops_per_token_ / peak_);
      text += "  " + duration_text(left(report.step)) + " left";
      line(text);
      seconds_ = 0;
      tokens_ = count_ = 0;
    }
    progress_.update(static_cast<double>(report.step), static_cast<double>(steps));
    step_seconds_ = report.seconds;
    const std::int64_t interval = trainer_.config().eval_interval;
    announce(trainer_.has_validation() && interval > 0 && (report.step % interval == 0 || last));
  }

  // Whether a stop drops the current step instead of finishing it: if it has several micro-batches and takes long.
  bool drops_step() const {
    constexpr double kLong = 10;  // seconds
    return trainer_.config().grad_accum > 1 && (step_seconds_ == 0 || step_seconds_ > kLong);
  }

  // Sets the message of Ctrl-C.
  void announce(bool evaluating = false) const {
    const std::int64_t step = trainer_.steps_done() + 1;
    const auto micro_batches = static_cast<double>(trainer_.config().grad_accum);
    const double seconds = drops_step() ? step_seconds_ / micro_batches : step_seconds_;
    const std::string about = seconds > 0 ? fmt::format(", about {:.0f} s", std::max(1.0, std::ceil(seconds))) : "";
    const std::string what =
        evaluating     ? "stopping the evaluation; --resume repeats it"
        : drops_step() ? fmt::format("finishing a micro-batch{}; step {} is dropped, --resume repeats it", about, step)
                       : fmt::format("finishing step {}{}", step, about);
    qkv::set_interrupt_notice("\nqkv: " + what + "; press Ctrl-C again to stop without saving\n");
  }

  double left(std::int64_t step) const {
    return progress_.seconds_left(static_cast<double>(step), static_cast<double>(trainer_.config().steps));
  }

  void evaluation(const qkv::EvalReport& report) {
    line(fmt::format("step {}  validation loss {:.4f}  {:.4f} bits per byte{}", report.step, report.loss,
                     report.bits_per_byte, report.best ? "  (best so far, saved in best/)" : ""));
    announce();
  }

  // Prints a sample and returns its text; empty if there is none.
  std::string sample(std::int64_t step) {
    std::vector<std::int32_t> prompt = trainer_.tokenizer().encode(settings_.sample_prompt);
    const std::int32_t begin = trainer_.tokenizer().begin_token(), end = trainer_.tokenizer().end_token();
    if (begin >= 0) prompt.insert(prompt.begin(), begin);
    if (prompt.empty() && end >= 0) prompt.push_back(end);
    if (prompt.empty()) {
      line("no sample: the sample prompt is empty");
      return {};
    }
    qkv::GenerateOptions options;
    options.sampler.seed = trainer_.config().seed + static_cast<std::uint64_t>(step);
    options.max_tokens = settings_.sample_tokens;
    if (end >= 0) options.end_tokens = {end};
    options.vocab_limit = trainer_.tokenizer().size();
    qkv::Utf8Stream stream;
    std::string text = stream.push(settings_.sample_prompt);
    try {
      text +=
          stream.push(trainer_.tokenizer().decode(qkv::generate(trainer_.model(), prompt, options, [](std::int32_t) {
                                                    return !qkv::interrupt_requested();
                                                  }).tokens));
    } catch (const qkv::SamplingError& error) {  // NaN logits; the run handles them itself
      line(fmt::format("no sample: {}", error.what()));
      return {};
    }
    text += stream.flush();
    std::string shown = fmt::format("sample after step {}:\n  | ", step);
    for (const char c : text.substr(std::min(text.find_first_not_of('\n'), text.size()))) {
      const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
      shown += c == '\n' ? "\n  | " : control ? "?" : std::string(1, c);
    }
    line(shown);
    if (const double share = qkv::repetition(text); share >= qkv::kRepetitionThreshold) {
      line(fmt::format("warning: the sample after step {} is repetitive: {:.0f} % repeats earlier text", step,
                       100 * share));
    }
    return text;
  }

  qkv::Trainer& trainer_;
  const TrainSettings& settings_;
  double flops_per_token_, peak_;
  Progress progress_;
  TrainPage* page_ = nullptr;
  TrainProfile profile_;
  double step_seconds_ = 0;              // of the latest step
  double seconds_ = 0;                   // since the last log line
  std::int64_t tokens_ = 0, count_ = 0;  // since the last log line
};

// What the report shows besides the configuration.
std::vector<qkv::RunFacts> page_facts(const TrainSettings& settings, qkv::Trainer& trainer, const qkv::Peak& peak) {
  const qkv::TokenDataset& data = trainer.data();
  qkv::RunFacts text{"Data", {}};
  for (const std::string& file : settings.data) text.rows.emplace_back("text", file);
  text.rows.emplace_back("vocabulary", fmt::format("{} tokens", trainer.tokenizer().size()));
  const auto size = [](const qkv::TokenPart& part) {
    return fmt::format("{} tokens, {:.2f} MB", part.size(), static_cast<double>(part.bytes()) * 1e-6);
  };
  if (!settings.init.empty()) text.rows.emplace_back("initial model", settings.init);
  if (trainer.adapters()) text.rows.emplace_back("adapters", describe_lora(*trainer.adapters()));
  text.rows.emplace_back("training", size(data.training()));
  text.rows.emplace_back("validation", size(data.validation()));
  qkv::RunFacts machine{"Machine", {{"device", std::string(trainer.model().device())}}};
  if (peak.gflops > 0)
    machine.rows.emplace_back("peak", fmt::format("{:.0f} GFLOP/s ({})", peak.gflops, peak.instructions));
  return {text, machine};
}

// run_training with its report, which also shows an error that ends the run.
bool run_with_page(qkv::Trainer& trainer, const qkv::RunOptions& options, Reporter& reporter, TrainPage& page) {
  reporter.keep(page);
  try {
    const bool complete = qkv::run_training(trainer, options, reporter.observer());
    page.end(
        complete ? qkv::RunPhase::finished : qkv::RunPhase::stopped,
        complete ? "" : fmt::format("Stopped after step {}; continue with qkv train --resume.", trainer.steps_done()));
    return complete;
  } catch (const std::exception& error) {
    page.end(qkv::RunPhase::failed, error.what());
    throw;
  }
}

// The speed of the whole run, including evaluations, checkpoints and samples. The peak is the larger of two
// measurements, before the first and after the last step, since other programs can only lower it.
void report_speed(Reporter& reporter, const TrainSettings& settings, double flops, double before, double after) {
  const TrainProfile& profile = reporter.profile();
  if (profile.steps == 0) return;
  const double rate = static_cast<double>(profile.tokens) / reporter.seconds(), peak = std::max(before, after);
  std::string text = fmt::format("speed: {:.1f} tokens/s overall", rate);
  if (peak > 0)
    text += fmt::format(", {:.1f} % of the peak of {:.0f} GFLOP/s", 100 * rate * flops / (peak * 1e9), peak);
  reporter.line(text + fmt::format("; peak memory {:.2f} GB", static_cast<double>(peak_memory()) / 1e9));
  if (settings.profile) print(profile_table(profile));
}

void run(const TrainSettings& settings) {
  if (settings.out.empty()) throw UsageError("--out is required: the output directory");
  qkv::Trainer trainer = settings.resume ? resume(settings) : start(settings);
  describe(trainer);
  const qkv::ModelConfig& model = trainer.model().config();
  double flops = qkv::training_flops_per_token(model, window_of(trainer));
  if (trainer.adapters())  // only adapted matrices have a gradient
    flops -= 2.0 * static_cast<double>(qkv::matrix_parameters(model) - adapted_elements(model, *trainer.adapters()));
  const bool on_cpu = trainer.model().device() == "cpu";  // the peak can be measured only there
  const auto peak_now = [&] { return on_cpu ? qkv::measure_peak(trainer.config().compute_dtype) : qkv::Peak{}; };
  const qkv::Peak peak = peak_now();
  print(on_cpu
            ? fmt::format("compute: {}, peak {:.0f} GFLOP/s ({}), {:.1f} MFLOP per token\n",
                          qkv::dtype_name(trainer.config().compute_dtype), peak.gflops, peak.instructions, flops / 1e6)
            : fmt::format("device {}: {}, {:.1f} MFLOP per token\n", trainer.model().device(),
                          qkv::dtype_name(trainer.model().dtype()), flops / 1e6));
  qkv::install_interrupt_latch();
  Reporter reporter(trainer, settings, flops, peak.gflops * 1e9);
  if (settings.profile) trainer.model().set_profile(&reporter.profile().model);
  TrainPage page(settings.out, trainer, page_facts(settings, trainer, peak),
                 [&](const std::string& text) { reporter.warning(text); });
  const bool complete = run_with_page(
      trainer, {settings.out, flops, peak.gflops * 1e9, settings.stop_after, settings.save_patience}, reporter, page);
  trainer.model().set_profile(nullptr);
  report_speed(reporter, settings, flops, peak.gflops, peak_now().gflops);
  if (!complete) {
    reporter.line(fmt::format("{}; saved at step {} in {}. Continue with --resume",
                              qkv::interrupt_requested() ? "interrupted" : "stopped", trainer.steps_done(),
                              settings.out));
    return;
  }
  std::string text = fmt::format("done: {} steps in {}", trainer.steps_done(), duration_text(reporter.seconds()));
  if (trainer.skipped_steps() > 0) text += fmt::format(", {} of them skipped", trainer.skipped_steps());
  if (std::isfinite(trainer.best_loss())) {
    text += fmt::format("; best validation loss {:.4f} at step {}, in {}/best", trainer.best_loss(),
                        trainer.best_step(), settings.out);
  }
  reporter.line(text);
  reporter.line(fmt::format("report: {}/report.html", settings.out));
  if (trainer.adapters())
    reporter.line(
        fmt::format("adapters: {0}, base model: {0}/base (try: qkv generate -m {0}/base --lora {0} -p \"...\"; "
                    "merge: qkv convert {0}/base MODEL --lora {0})",
                    settings.out));
  else
    reporter.line(fmt::format("model: {0} (try: qkv generate -m {0} -p \"...\")", settings.out));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model on text");
  const auto settings = add_train_options(*command);
  command->callback([command, settings] {
    read_config_file(*command, *settings);
    run(*settings);
  });
}

const Subcommand kTrain(20, add);

}  // namespace
