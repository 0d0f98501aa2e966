// SPDX-License-Identifier: Apache-2.0
// qkv bench train: training steps of a preset on random tokens, relative to the peak measured between them.
#include <fmt/format.h>
#include <qkv/measure.h>
#include <qkv/threads.h>
#include <qkv/train.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "bench_timing.h"
#include "common_options.h"
#include "train_profile.h"

namespace {

using qkv::DType;

struct Options {
  std::string preset = "andrea-120m", dtypes, device, optimizer = "adamw";
  std::int64_t batch_size = 4, ctx_len = 0, steps = 5;
  bool recompute = false, json = false;
};

constexpr const char* kFooter = R"(
Complete training steps (forward, backward, optimizer) on random tokens, after one warm-up step. The peak is a
register-only FMA loop (qkv bench peak), measured after each step with the same threads. FLOPs per token: 6 per matrix
parameter (including the head, excluding embeddings) plus 3 times causal attention forward. The step time is the median.

Examples
  qkv bench train
  qkv bench train --preset andrea-12m --dtype f32 --batch-size 8 --steps 20
  qkv bench train --recompute --json)";

std::vector<DType> types_of(const std::string& list, const std::string& device) {
  if (device == "reference") {
    if (!list.empty()) throw qkv::cli::UsageError("--dtype is for --device cpu; reference computes in f64");
    return {DType::f64};
  }
  if (list.empty()) return {DType::bf16, DType::f32};
  std::vector<DType> types;
  for (const std::string& name : qkv::cli::split(list)) {
    if (name != "bf16" && name != "f32")
      throw qkv::cli::UsageError("--dtype expected f32, bf16 or both, comma-separated; found '" + name + "'");
    types.push_back(qkv::dtype_from_name(name));
  }
  return types;
}

// A trainer with random tokens, enough for all steps.
qkv::Trainer make_trainer(const Options& o, const qkv::ModelConfig& config, DType dtype) {
  qkv::TrainConfig train;
  train.batch_size = o.batch_size;
  train.steps = o.steps + 1;
  if (dtype != DType::f64) train.compute_dtype = dtype;
  train.recompute = o.recompute;
  train.optimizer = o.optimizer;
  const std::vector<std::int32_t> tokens = qkv::cli::random_tokens(config.ctx_len * (2 * o.batch_size + 2), 257, 0);
  auto data = qkv::TokenDataset::from_tokens(tokens, {}, config.vocab_size);
  return {qkv::Model(config, 1, o.device.empty() ? "cpu" : o.device), qkv::Tokenizer::bytes(), std::move(data), train};
}

void run(const Options& o, DType dtype) {
  qkv::ModelConfig config = qkv::preset(o.preset).resolved();
  if (o.ctx_len > 0) config.ctx_len = o.ctx_len;
  qkv::Trainer trainer = make_trainer(o, config, dtype);
  trainer.step();
  qkv::cli::TrainProfile profile;
  trainer.model().set_profile(&profile.model);
  std::optional<qkv::PeakMeter> meter;  // not for f64, which has no such loop
  if (dtype != DType::f64) meter.emplace(dtype);
  std::vector<double> seconds, peaks;
  for (std::int64_t i = 0; i < o.steps; ++i) {
    const qkv::StepReport report = trainer.step();
    profile.add(report);
    seconds.push_back(report.seconds);
    for (int k = 0; meter && k < 3; ++k) peaks.push_back(meter->sample());
  }
  const double step = qkv::cli::median_of(seconds), peak = meter ? qkv::cli::median_of(peaks) : 0;
  const double rate = static_cast<double>(o.batch_size * config.ctx_len) / step;
  const double gflops = rate * qkv::training_flops_per_token(config, config.ctx_len) / 1e9;
  if (o.json) {
    using Json = nlohmann::ordered_json;
    const nlohmann::ordered_json line = {{"preset", o.preset},
                                         {"dtype", qkv::dtype_name(dtype)},
                                         {"batch_size", o.batch_size},
                                         {"ctx_len", config.ctx_len},
                                         {"recompute", o.recompute},
                                         {"optimizer", o.optimizer},
                                         {"threads", qkv::num_threads()},
                                         {"tokens_per_s", rate},
                                         {"fraction", meter ? Json(gflops / peak) : Json()},
                                         {"peak_gflops", meter ? Json(peak) : Json()},
                                         {"peak_rss_bytes", qkv::cli::peak_memory()},
                                         {"ms_per_step", step * 1e3},
                                         {"ms_per_step_of", qkv::cli::profile_json(profile)}};
    qkv::cli::print(line.dump() + "\n");
    return;
  }
  std::string text =
      fmt::format("{} {}: {:.1f} tokens/s, {:.1f} GFLOP/s", o.preset, qkv::dtype_name(dtype), rate, gflops);
  if (meter)
    text += fmt::format(", {:.1f} % of the peak of {:.0f} ({})", 100 * gflops / peak, peak, meter->instructions());
  qkv::cli::print(text + fmt::format(", threads {}, {} x {} tokens per step, peak memory {:.2f} GB\n{}",
                                     qkv::num_threads(), o.batch_size, config.ctx_len,
                                     static_cast<double>(qkv::cli::peak_memory()) / 1e9,
                                     qkv::cli::profile_table(profile)));
}

void run_all(const Options& o) {
  qkv::cli::note_other_load();
  for (const DType dtype : types_of(o.dtypes, o.device)) {
    if (dtype == DType::bf16 && !qkv::fast_bf16()) {
      qkv::cli::print_error("qkv: note: this processor has no bf16 instructions; skipping bf16\n");
      continue;
    }
    run(o, dtype);
  }
}

}  // namespace

void qkv::cli::add_bench_train(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("train", "Training tokens per second vs. peak, time by operation");
  qkv::cli::add_choice(*command, "--preset", options->preset, preset_names(), "Named configuration");
  command->add_option("--dtype", options->dtypes, "Matmul precision: bf16, f32 or both [bf16,f32]")
      ->type_name("TYPE[,TYPE]");
  add_count(*command, "--batch-size", options->batch_size, 1, "Sequences per step");
  add_number(*command, "--ctx-len", options->ctx_len, "Tokens per sequence [the preset's context]")->check(at_least(1));
  add_count(*command, "--steps", options->steps, 1, "Steps timed");
  qkv::cli::add_choice(*command, "--optimizer", options->optimizer, optimizer_names(), "Optimizer");
  command->add_flag("--recompute", options->recompute, "Activation checkpointing: recompute to save memory");
  command->add_flag("--json", options->json, "One JSON object per line");
  add_device_option(*command, options->device);
  add_threads_option(*command);
  command->footer(kFooter);
  command->callback([options] { run_all(*options); });
}
