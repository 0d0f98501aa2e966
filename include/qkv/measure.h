// SPDX-License-Identifier: Apache-2.0
// Measured hardware limits, and FLOP and byte counts of operations: the single set of formulas behind every speed that
// qkv reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/model.h"
#include "qkv/tensor.h"

namespace qkv {

// Peak multiply-add rate of this machine with num_threads() threads, from a register-only loop. `kernels` is the
// instruction set (names: kernel_set() in kernels.h); "": the best one this processor supports. Sets without bf16
// instructions multiply bf16 as f32. Only meaningful on an otherwise idle machine.
struct Peak {
  double gflops = 0;         // 1e9 operations per second; a multiply-add is two
  std::string instructions;  // "avx512_bf16", "avx512", "avx2" or "portable"
};
// Best of several samples; takes about 0.2 s. dtype: f32 or bf16. Throws std::invalid_argument.
Peak measure_peak(DType dtype = DType::f32, std::string_view kernels = "");

// The same, one sample at a time, for interleaving with other measurements.
class PeakMeter {
 public:
  explicit PeakMeter(DType dtype = DType::f32, std::string_view kernels = "");
  double sample() const;  // 1e9 operations per second, over about 10 ms
  const std::string& instructions() const noexcept { return instructions_; }

 private:
  void (*loop_)(std::int64_t rounds) noexcept;
  std::int64_t flops_per_round_, threads_, rounds_;
  std::string instructions_;
};

// Theoretical peak: threads * frequency * operations per cycle. The frequency is measured with a chain of dependent
// additions, one per cycle (it may drop while wide instructions run). Multiply-adds per cycle are the integer nearest
// to the rate one thread reaches.
struct TheoreticalPeak {
  double ghz = 0;
  int operations_per_cycle = 0;  // per thread
  double gflops = 0;
};
TheoreticalPeak theoretical_peak(DType dtype = DType::f32, std::string_view kernels = "");

// Sequential memory read bandwidth with num_threads() threads, in 1e9 bytes per second. Uses the fastest of several
// loops (wide loads, prefetching, several streams), chosen at construction.
class ReadMeter {
 public:
  // Allocates `bytes` or a little more; should exceed the caches. Throws std::invalid_argument below 1 MiB, and
  // std::bad_alloc.
  explicit ReadMeter(std::int64_t bytes = std::int64_t{512} << 20);
  // Uses the caller's memory, which must outlive the meter: pages differ in speed, so a program's limit is that of its
  // own pages. Each thread reads an equal share of each part, in whole 16 KiB blocks; the remainder is not read. Throws
  // std::invalid_argument if no part has one block per thread.
  explicit ReadMeter(std::vector<std::span<const std::byte>> parts);
  double sample() const;
  const std::string& loop() const noexcept { return loop_; }  // description
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void choose_loop();

  Tensor memory_;  // [bytes / 8], i64, or empty
  std::vector<std::span<const std::byte>> parts_;
  std::int64_t bytes_ = 0, threads_;
  void (*run_)(const char*, std::int64_t) noexcept = nullptr;
  std::string loop_;
};
// Best of several samples.
double measure_read_bandwidth(std::int64_t bytes = std::int64_t{512} << 20);

// The (query, key) pairs with key <= start + query: those a causal mask allows, for one sequence and head.
std::int64_t causal_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start) noexcept;
// The pairs that a causal mask and a window (-1: no limit, as in attention.h) allow, for one sequence and head.
std::int64_t visible_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start, bool causal,
                           std::int64_t window_left = -1, std::int64_t window_right = -1) noexcept;
// FLOPs of attention for `pairs` pairs, summed over heads and sequences: q . k and probs . v, one multiply-add per
// dimension each. The backward pass recomputes the scores: five products instead of two.
double attention_forward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept;
double attention_backward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept;

// Work of one step of attention with all matrices materialized, as in the equations. The tiled path computes the same
// sums, only for visible pairs, and does not store scores.
struct StepWork {
  double scores = 0;  // (query, key) pairs over all heads and sequences; 0 if not applicable
  double flops = 0;   // a multiply-add is two
  double bytes = 0;   // read and written, each array once
};
// The sizes of one multi-head attention layer; n_kv_head divides n_head.
struct AttentionSizes {
  std::int64_t batch = 1, ctx = 0, d_model = 0, n_head = 1, n_kv_head = 1, d_k = 0, d_v = 0;
  std::int64_t element_bytes = 4;
  bool bias = false;  // the four projections have one
};
struct AttentionWork {
  StepWork queries, keys, values;  // X . W: [batch * ctx, d_model] . [d_model, heads * d]
  StepWork scores;                 // q . k of every pair
  StepWork scale;                  // one multiplication per score
  StepWork mask;                   // one addition per score
  StepWork softmax;                // five per score: compare, subtract, exponential, add, divide
  StepWork weighted_sum;           // probs . v
  StepWork output;                 // concatenated heads . W_O
  StepWork residual;               // X + out
  StepWork total() const noexcept;
};
AttentionWork attention_work(const AttentionSizes& sizes) noexcept;

// The functions below need a resolved configuration (ModelConfig::resolved).

// Elements of all matrices that multiply activations: projections, MLP and head (also if tied), without embeddings.
std::int64_t matrix_parameters(const ModelConfig& config) noexcept;
// FLOPs per token at this context length, averaged over positions: 2 per matrix parameter, plus causal attention.
double forward_flops_per_token(const ModelConfig& config, std::int64_t ctx) noexcept;
// Forward and backward; the backward pass counts as two forward passes (the usual convention): 605 million for
// andrea-120m at context 1024.
double training_flops_per_token(const ModelConfig& config, std::int64_t ctx) noexcept;
// Keys and values of `tokens` tokens in all layers.
std::int64_t kv_cache_bytes(const ModelConfig& config, std::int64_t tokens, DType dtype = DType::f32) noexcept;

}  // namespace qkv
