// SPDX-License-Identifier: Apache-2.0
// The parts of `qkv bench`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli.h"

namespace qkv::cli {

void add_bench_peak(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_train(CLI::App& bench);
void add_bench_generate(CLI::App& bench);

// Pseudo-random tokens below vocab_size; the same for the same seed.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab_size, std::uint64_t seed);

// The items of a comma-separated list.
std::vector<std::string> split(const std::string& list);

// Throws UsageError unless the device is the CPU: `what` is compared with the CPU's limits.
void require_cpu(const std::string& device, const std::string& what);

// Prints a note on standard error if other programs keep the CPU busy, since timings are then unreliable.
void note_other_load();

}  // namespace qkv::cli
