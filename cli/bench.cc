// SPDX-License-Identifier: Apache-2.0
// qkv bench: how fast this machine is, and how much of that attention and training use.
#include "bench.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>

namespace {

constexpr const char* kFooter = R"(
A speed means something beside its ceiling, and on a machine that does nothing else. Ceilings are measured by the same
process, between the passes they belong to, with the same threads and the same kernels (QKV_KERNELS forces a set).
  qkv bench peak            how fast it multiplies and adds, and reads memory
  qkv bench attention       forward, backward and decode against those ceilings
  qkv bench train           optimizer steps of a whole model
  qkv bench generate        prompts read and tokens written)";

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
        fmt::format("{} is measured against the processor's ceilings: --device expected cpu; found {}", what, device));
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
  double load = 0;  // threads that ran or waited in the last minute, those of an earlier run of this program too
  if (getloadavg(&load, 1) != 1 || load < 1.5 * std::thread::hardware_concurrency()) return;
  print_error(
      fmt::format("qkv: note: this machine is busy with other things (load {:.1f}); speeds mean little\n", load));
}
