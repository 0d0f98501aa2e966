// SPDX-License-Identifier: Apache-2.0
// qkv bench: hardware limits, and the speed of attention, training and generation relative to them.
#include "bench.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>

namespace {

constexpr const char* kFooter = R"(
Speeds are compared with hardware limits, which the same process measures between the runs, with the same threads and
kernels (QKV_KERNELS forces a kernel set). Run benchmarks on an idle machine.
  qkv bench peak            FLOP/s and read bandwidth of this machine
  qkv bench attention       forward, backward and decode
  qkv bench train           training steps of a whole model
  qkv bench generate        prefill and decode)";

void add(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Benchmark attention, training and generation against this machine's limits");
  bench->require_subcommand(1);
  bench->footer(kFooter);
  qkv::cli::add_bench_peak(*bench);
  qkv::cli::add_bench_attention(*bench);
  qkv::cli::add_bench_train(*bench);
  qkv::cli::add_bench_generate(*bench);
}

const qkv::cli::Subcommand kBench(50, add);

}  // namespace

void qkv::cli::require_cpu(const std::string& device, const std::string& what) {
  if (!device.empty() && device != "cpu")
    throw UsageError(
        fmt::format("{} is compared with the limits of the CPU: --device expected cpu; found {}", what, device));
}

std::vector<std::int32_t> qkv::cli::random_tokens(std::int64_t count, std::int64_t vocab_size, std::uint64_t seed) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::uint64_t state = 88172645463325252ull + seed * 7919;
  for (std::int32_t& token : tokens) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    token = static_cast<std::int32_t>(state % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

std::vector<std::string> qkv::cli::split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

void qkv::cli::note_other_load() {
  double load = 0;  // average over the last minute; includes earlier runs of this program
  if (getloadavg(&load, 1) != 1 || load < 1.5 * std::thread::hardware_concurrency()) return;
  print_error(fmt::format("qkv: note: other programs are busy (load {:.1f}); measurements are unreliable\n", load));
}
