// SPDX-License-Identifier: Apache-2.0
// qkv bench peak: the limits of this machine.
#include <fmt/format.h>
#include <qkv/kernels.h>
#include <qkv/measure.h>
#include <qkv/threads.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "bench_timing.h"
#include "common_options.h"

namespace {

using qkv::DType;

struct Options {
  std::string device;
  int reps = 15;
  std::int64_t megabytes = 512;
  bool json = false;
};

constexpr const char* kFooter = R"(
Three limits, each the median and the best of --reps runs:
  f32, bf16   a register-only FMA loop with the widest instructions of the kernels in use (QKV_KERNELS); a kernel set
              without bf16 instructions computes bf16 as f32. An FMA is two FLOPs. The theoretical peak is threads x
              frequency x FLOPs per cycle; the frequency is measured with a chain of dependent additions, one per
              cycle. CPUs that reduce the clock for wide instructions stay below it.
  read        sequential read of --memory-mb of memory, more than fits in the caches; the fastest of several loops (wide
              loads, prefetch at several distances, several streams).

Examples
  qkv bench peak
  qkv bench peak --threads 1
  QKV_KERNELS=avx2 qkv bench peak --json)";

template <class Meter>
std::vector<double> samples_of(const Meter& meter, int reps) {
  std::vector<double> samples;
  for (int i = 0; i < reps; ++i) samples.push_back(meter.sample());
  return samples;
}

void multiply_adds(const Options& options, DType dtype) {
  const std::string kernels(qkv::kernel_set());
  const auto samples = samples_of(qkv::PeakMeter(dtype, kernels), options.reps);
  const auto clock = qkv::theoretical_peak(dtype, kernels);
  const double median = qkv::cli::median_of(samples), best = *std::max_element(samples.begin(), samples.end());
  if (options.json) {
    const nlohmann::ordered_json line = {{"ceiling", qkv::dtype_name(dtype)},
                                         {"kernels", kernels},
                                         {"threads", qkv::num_threads()},
                                         {"gflops", median},
                                         {"best_gflops", best},
                                         {"ghz", clock.ghz},
                                         {"operations_per_cycle", clock.operations_per_cycle},
                                         {"theoretical_gflops", clock.gflops},
                                         {"fraction", median / clock.gflops}};
    qkv::cli::print(line.dump() + "\n");
    return;
  }
  qkv::cli::print(fmt::format("{:<5} {:8.1f} GFLOP/s  best {:.1f}; {:.1f} % of {:.1f} = {} x {:.2f} GHz x {} FLOPs\n",
                              qkv::dtype_name(dtype), median, best, 100 * median / clock.gflops, clock.gflops,
                              qkv::num_threads(), clock.ghz, clock.operations_per_cycle));
}

void reading(const Options& options) {
  const qkv::ReadMeter meter(options.megabytes << 20);
  const auto samples = samples_of(meter, options.reps);
  const double median = qkv::cli::median_of(samples), best = *std::max_element(samples.begin(), samples.end());
  if (options.json) {
    const nlohmann::ordered_json line = {{"ceiling", "read"},      {"threads", qkv::num_threads()},
                                         {"gb_per_s", median},     {"best_gb_per_s", best},
                                         {"bytes", meter.bytes()}, {"loop", meter.loop()}};
    qkv::cli::print(line.dump() + "\n");
    return;
  }
  qkv::cli::print(
      fmt::format("read  {:8.1f} GB/s  best {:.1f}; {} MB, {}\n", median, best, meter.bytes() >> 20, meter.loop()));
}

void run(const Options& options) {
  qkv::cli::require_cpu(options.device, "the peak");
  qkv::cli::note_other_load();
  if (!options.json) qkv::cli::print(fmt::format("threads: {}, kernels: {}\n", qkv::num_threads(), qkv::kernel_set()));
  multiply_adds(options, DType::f32);
  multiply_adds(options, DType::bf16);
  reading(options);
}

}  // namespace

void qkv::cli::add_bench_peak(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("peak", "Hardware limits: FLOP/s and read bandwidth");
  const auto options = std::make_shared<Options>();
  add_device_option(*command, options->device);
  add_threads_option(*command);
  qkv::cli::add_number(*command, "--reps", options->reps, "Runs per case, median [15]")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  qkv::cli::add_number(*command, "--memory-mb", options->megabytes, "Memory to read, MiB [512]")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command->add_flag("--json", options->json, "One JSON object per line");
  command->footer(kFooter);
  command->callback([options] { run(*options); });
}
