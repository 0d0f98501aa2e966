// SPDX-License-Identifier: Apache-2.0
// qkv bench train: optimiser steps of a preset on drawn tokens, against the peak measured between them.
#include <fmt/format.h>
#include <qkv/measure.h>
#include <qkv/threads.h>
#include <qkv/train.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "bench_timing.h"
#include "number_options.h"
#include "train_profile.h"

namespace {

using qkv::DType;

struct Options {
  std::string preset = "andrea-120m", dtypes = "bf16,f32", optimizer = "adamw";
  std::int64_t batch_size = 4, ctx_len = 0, steps = 5;
  bool recompute = false, json = false;
};

constexpr const char* kFooter = R"(
Whole training steps: forward, backward and optimizer, on tokens drawn at random, after one step that is not counted. The
peak is a loop of multiply-adds over registers (qkv bench peak), measured after each step with the same threads. A
token's operations are 6 for each matrix parameter (embeddings not counted, the head counted) and 3 times the causal
attention of the forward pass. The time of a step is the median.

Examples
  qkv bench train
  qkv bench train --preset andrea-12m --dtype f32 --batch-size 8 --steps 20
  qkv bench train --recompute --json)";

std::vector<DType> types_of(const std::string& list) {
  std::vector<DType> types;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, end - at);
    if (name != "bf16" && name != "f32")
      throw qkv::cli::UsageError("--dtype takes f32 and bf16, with commas between; found '" + name + "'");
    types.push_back(qkv::dtype_from_name(name));
    at = end + 1;
  }
  return types;
}

// Tokens that a step reads: data enough for all steps, drawn by a counter.
qkv::Trainer make_trainer(const Options& o, const qkv::ModelConfig& config, DType dtype) {
  qkv::TrainConfig train;
  train.batch_size = o.batch_size;
  train.steps = o.steps + 1;
  train.operands = dtype;
  train.recompute = o.recompute;
  train.optimizer = o.optimizer;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(config.ctx_len * (2 * o.batch_size + 2)));
  std::uint64_t state = 88172645463325252ull;
  for (std::int32_t& token : tokens) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    token = static_cast<std::int32_t>(state % 257);
  }
  auto data = qkv::TokenDataset::from_tokens(tokens, {}, config.vocab_size);
  return {qkv::Model(config, 1), qkv::Tokenizer::bytes(), std::move(data), train};
}

void run(const Options& o, DType dtype) {
  qkv::ModelConfig config = qkv::preset(o.preset).resolved();
  if (o.ctx_len > 0) config.ctx_len = o.ctx_len;
  qkv::Trainer trainer = make_trainer(o, config, dtype);
  trainer.step();
  qkv::cli::TrainProfile profile;
  trainer.model().set_profile(&profile.model);
  const qkv::PeakMeter meter(dtype);
  std::vector<double> seconds, peaks;
  for (std::int64_t i = 0; i < o.steps; ++i) {
    const qkv::StepReport report = trainer.step();
    profile.add(report);
    seconds.push_back(report.seconds);
    for (int k = 0; k < 3; ++k) peaks.push_back(meter.sample());
  }
  const double step = qkv::cli::median_of(seconds), peak = qkv::cli::median_of(peaks);
  const double rate = static_cast<double>(o.batch_size * config.ctx_len) / step;
  const double gflops = rate * qkv::training_flops_per_token(config, config.ctx_len) / 1e9;
  if (o.json) {
    const nlohmann::ordered_json line = {{"preset", o.preset},
                                         {"dtype", qkv::dtype_name(dtype)},
                                         {"batch_size", o.batch_size},
                                         {"ctx_len", config.ctx_len},
                                         {"recompute", o.recompute},
                                         {"optimizer", o.optimizer},
                                         {"threads", qkv::num_threads()},
                                         {"tokens_per_s", rate},
                                         {"fraction", gflops / peak},
                                         {"peak_gflops", peak},
                                         {"peak_rss_bytes", qkv::cli::peak_memory()},
                                         {"ms_per_step", step * 1e3},
                                         {"ms_per_step_of", qkv::cli::profile_json(profile)}};
    qkv::cli::print(line.dump() + "\n");
    return;
  }
  qkv::cli::print(
      fmt::format("{} {}: {:.1f} tokens/s, {:.1f} GF/s, {:.1f} % of the peak of {:.0f} ({}), {} threads, "
                  "{} x {} tokens a step, {:.2f} GB at most\n{}",
                  o.preset, qkv::dtype_name(dtype), rate, gflops, 100 * gflops / peak, peak, meter.instructions(),
                  qkv::num_threads(), o.batch_size, config.ctx_len, static_cast<double>(qkv::cli::peak_memory()) / 1e9,
                  qkv::cli::profile_table(profile)));
}

void run_all(const Options& o) {
  qkv::cli::note_other_load();
  for (const DType dtype : types_of(o.dtypes)) {
    if (dtype == DType::bf16 && !qkv::fast_bf16()) {
      qkv::cli::print_error("qkv: note: this processor has no bf16 instructions; bf16 is left out\n");
      continue;
    }
    run(o, dtype);
  }
}

}  // namespace

void qkv::cli::add_bench_train(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("train", "Training steps: tokens a second, share of the peak, time by part");
  command->add_option("--preset", options->preset, "Model to train")
      ->check(CLI::IsMember(preset_names()).description(""))
      ->capture_default_str();
  command
      ->add_option("--dtype", options->dtypes, "Operands of products: bf16, f32 or both (memory is that of the first)")
      ->type_name("TYPE[,TYPE]")
      ->capture_default_str();
  add_number(*command, "--batch-size", options->batch_size, "Sequences a step")
      ->check(at_least(1))
      ->capture_default_str();
  add_number(*command, "--ctx-len", options->ctx_len, "Tokens of a sequence [the preset's]")->check(at_least(1));
  add_number(*command, "--steps", options->steps, "Steps timed")->check(at_least(1))->capture_default_str();
  command->add_option("--optimizer", options->optimizer, "Optimizer")
      ->check(CLI::IsMember(optimizer_names()).description(""))
      ->capture_default_str();
  command->add_flag("--recompute", options->recompute, "Keep less than half of the activations and make them again");
  command->add_flag("--json", options->json, "One JSON object a line");
  add_threads_option(*command);
  command->footer(kFooter);
  command->callback([options] { run_all(*options); });
}
