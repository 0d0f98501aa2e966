// SPDX-License-Identifier: Apache-2.0
// What the machine can do, measured, and how many operations and bytes a piece of work needs: the one set of formulas
// of every speed that qkv reports.
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

// The fastest that this machine multiplies and adds, with num_threads() threads: a loop over registers alone. `kernels`
// is the set whose instructions are used (kernel_set() of kernels.h names them), "" the best that this processor has; a
// set without bf16 products multiplies bf16 as f32. Means something only where nothing else runs.
struct Peak {
  double gflops = 0;         // 1e9 operations a second; a multiply-add is two
  std::string instructions;  // the set: "avx512_bf16", "avx512", "avx2" or "portable"
};
// Best of several; takes about 0.2 s. dtype: f32 or bf16. Throws std::invalid_argument.
Peak measure_peak(DType dtype = DType::f32, std::string_view kernels = "");

// The same, a sample at a time, for a ceiling measured between other measurements.
class PeakMeter {
 public:
  explicit PeakMeter(DType dtype = DType::f32, std::string_view kernels = "");
  double sample() const;  // 1e9 operations a second over about 10 ms
  const std::string& instructions() const noexcept { return instructions_; }

 private:
  void (*loop_)(std::int64_t rounds) noexcept;
  std::int64_t flops_per_round_, threads_, rounds_;
  std::string instructions_;
};

// What a processor can do by its clock: threads * frequency * operations a cycle. The clock is that of a chain of
// additions, one a cycle (it may fall while wide instructions run); multiply-adds a cycle are a whole number, the
// nearest to what one thread reaches.
struct TheoreticalPeak {
  double ghz = 0;
  int operations_per_cycle = 0;  // a thread
  double gflops = 0;
};
TheoreticalPeak theoretical_peak(DType dtype = DType::f32, std::string_view kernels = "");

// How fast this machine reads memory in order with num_threads() threads, in 1e9 bytes a second. Of several loops (wide
// loads, prefetching, several streams) the one that was fastest when the meter was made.
class ReadMeter {
 public:
  // Memory of its own, `bytes` or a little more: more than the caches hold. Throws std::invalid_argument below 1 MiB,
  // std::bad_alloc.
  explicit ReadMeter(std::int64_t bytes = std::int64_t{512} << 20);
  // Memory of the caller, which outlives the meter: pages differ in how fast they are read, so that the ceiling of a
  // program is that of the pages that it reads. Each thread reads an equal share of each part; what is left of a part
  // beyond whole blocks of 16 KiB a thread is not read. Throws std::invalid_argument if no part has that much.
  explicit ReadMeter(std::vector<std::span<const std::byte>> parts);
  double sample() const;
  const std::string& loop() const noexcept { return loop_; }  // in words
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void choose_loop();

  Tensor memory_;  // [bytes / 8], i64, or none
  std::vector<std::span<const std::byte>> parts_;
  std::int64_t bytes_ = 0, threads_;
  void (*run_)(const char*, std::int64_t) noexcept = nullptr;
  std::string loop_;
};
// Best of several samples.
double measure_read_bandwidth(std::int64_t bytes = std::int64_t{512} << 20);

// The pairs (query, key) with key <= start + query: what a causal mask allows one sequence and head.
std::int64_t causal_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start) noexcept;
// The pairs that causality and a window (-1: no limit, as in attention.h) allow one sequence and head.
std::int64_t readable_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start, bool causal,
                            std::int64_t window_left = -1, std::int64_t window_right = -1) noexcept;
// Floating-point operations of attention over that many pairs, all heads and sequences counted: q.k and probs.v, a
// multiply-add each a dimension. Backward recomputes the scores: five products for the two of the forward pass.
double attention_forward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept;
double attention_backward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept;

// What one step of attention does with every matrix held in full, as the equations stand. The tiled path does the same
// sums for readable pairs alone and moves no scores.
struct StepWork {
  double scores = 0;  // pairs (query, key), all heads and sequences counted; 0 where there are none
  double flops = 0;   // a multiply-add is two
  double bytes = 0;   // read and written, each operand once
};
// The sizes of one multi-head attention layer; n_kv_head divides n_head.
struct AttentionSizes {
  std::int64_t batch = 1, ctx = 0, d_model = 0, n_head = 1, n_kv_head = 1, d_k = 0, d_v = 0;
  std::int64_t element_bytes = 4;
  bool bias = false;  // the four products add one
};
struct AttentionWork {
  StepWork queries, keys, values;  // X . W: [batch * ctx, d_model] . [d_model, heads * d]
  StepWork scores;                 // q . k of every pair
  StepWork scale;                  // one multiplication a score
  StepWork mask;                   // one addition a score
  StepWork softmax;                // five a score: compare, subtract, exponential, add, divide
  StepWork weighted_sum;           // probs . v
  StepWork output;                 // heads side by side, . W_O
  StepWork residual;               // X + out
  StepWork total() const noexcept;
};
AttentionWork attention_work(const AttentionSizes& sizes) noexcept;

// The counts below take a resolved configuration (ModelConfig::resolved).

// Elements of all matrices that multiply activations: projections, MLP and head (also if tied), but no embedding.
std::int64_t matrix_parameters(const ModelConfig& config) noexcept;
// Operations a token at this context length, a mean over its positions: 2 a matrix parameter, and causal attention.
double forward_flops_per_token(const ModelConfig& config, std::int64_t ctx) noexcept;
// Forward and backward, which counts twice the forward pass (the usual convention): 605 million for andrea-120m at
// 1024.
double training_flops_per_token(const ModelConfig& config, std::int64_t ctx) noexcept;
// Keys and values of `tokens` tokens in every layer.
std::int64_t kv_cache_bytes(const ModelConfig& config, std::int64_t tokens, DType dtype = DType::f32) noexcept;

}  // namespace qkv
