// SPDX-License-Identifier: Apache-2.0
// What the machine can do, measured, and how many operations and bytes a piece of work needs: the one set of formulas
// of every speed that qkv reports.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/model.h"
#include "qkv/tensor.h"

namespace qkv {

// The fastest that this machine multiplies and adds, f32, with num_threads() threads: a loop over registers alone, best
// of several. Takes about 0.2 s and must run alone to mean anything.
struct Peak {
  double gflops = 0;         // 1e9 operations a second; a multiply-add is two
  std::string instructions;  // "avx512", "avx2" or "portable"
};
Peak measure_peak();

// The fastest that this machine reads `bytes` of memory in order with num_threads() threads, best of several, in 1e9
// bytes a second. Give more bytes than the caches hold. Throws std::invalid_argument below 1 MiB, std::bad_alloc.
double measure_read_bandwidth(std::int64_t bytes = std::int64_t{512} << 20);

// The pairs (query, key) with key <= start + query: what a causal mask allows one sequence and head.
std::int64_t causal_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start) noexcept;
// Floating-point operations of attention over that many pairs, all heads and sequences counted: q.k and probs.v, a
// multiply-add each a dimension. Backward recomputes the scores: five products for the two of the forward pass.
double attention_forward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept;
double attention_backward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept;

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
