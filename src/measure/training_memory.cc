// SPDX-License-Identifier: Apache-2.0
#include "qkv/training_memory.h"

#include <algorithm>
#include <stdexcept>

#include "linalg/packed_product.h"
#include "os/machine.h"
#include "qkv/measure.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

constexpr std::int64_t kStream = 4;            // bytes of an element of weights, gradients, the residual stream: f32
constexpr std::int64_t kOfToken = 8;           // a token and its target
constexpr std::int64_t kTokensAtOnce = 2048;   // of one pass, as in src/model/network.cc
constexpr std::int64_t kProgram = 22'000'000;  // the program and its libraries, touched
constexpr std::int64_t kPacked = 8'000'000;    // code that oneDNN generates for packed products
constexpr std::int64_t kOfThread = 6'000'000;  // tiles and panels that a thread works in
constexpr double kLargestCount = 1e18;         // bytes; beyond it is nobody's machine

// Sizes of one row of activations, in elements.
struct Widths {
  std::int64_t qkv, heads, up, activation;
  explicit Widths(const ModelConfig& c)
      : qkv(c.n_head * c.head_dim + c.n_kv_head * (c.head_dim + c.v_head_dim)),
        heads(c.n_head * c.v_head_dim),
        up((c.gated ? 2 : 1) * c.d_ff),
        activation(c.activation == Activation::relu ? 0 : c.d_ff) {}
};

std::int64_t padded_vocab(const ModelConfig& c) { return (c.vocab_size + 63) / 64 * 64; }

// Elements of the matrices that products read: those of the layers and the head.
std::int64_t matrix_elements(const ModelConfig& c) {
  const Widths w(c);
  return c.n_layer * (c.d_model * w.qkv + w.heads * c.d_model + c.d_model * w.up + c.d_ff * c.d_model);
}

// Elements of the parameters that are no matrix of a layer.
std::int64_t other_elements(const ModelConfig& c) {
  const std::int64_t tables =
      c.vocab_size + (c.tied_head ? 0 : c.vocab_size) + (c.positions == Positions::learned ? c.ctx_len : 0);
  return tables * c.d_model;  // norms and biases are nothing beside them
}

// The slots of partial sums that a step needs: the gradient itself, and others while lanes of its sequences wait for
// their siblings (src/model/lane_tree.h). Those of one pass do without the layers' matrices.
struct Slots {
  std::int64_t whole = 1, partial = 0;
};
Slots slots_of(std::int64_t batch, std::int64_t grad_accum, std::int64_t group) {
  constexpr std::int64_t kLanes = 8;
  const std::int64_t total = batch * grad_accum;
  if (total > 1024) return {4, 0};  // lanes of many sequences: 0-3, 4-5, 6 and 7 wait at the end
  const auto begin_of = [&](std::int64_t lane) { return lane * total / kLanes; };
  std::vector<std::int64_t> first;  // the first lane of each slot in use
  std::int64_t next = 0, whole = 1, all = 1;
  for (std::int64_t micro = 0; micro < grad_accum; ++micro) {
    for (std::int64_t b = 0; b < batch; b += group) {
      const bool before = first.size() > 1;
      std::int64_t most = 1;
      for (std::int64_t i = 0; i < std::min(group, batch - b); ++i, ++next) {
        std::int64_t lane = 0;
        while (begin_of(lane + 1) <= next) ++lane;
        if (begin_of(lane) == next) first.push_back(lane);
        most = std::max(most, static_cast<std::int64_t>(first.size()));
        if (next + 1 != begin_of(lane + 1)) continue;
        for (std::int64_t width = 1; width < kLanes && (lane / width) % 2 == 1; width *= 2)
          while (first.size() > 1 && first[first.size() - 2] >= lane / width * width - width) first.pop_back();
      }
      if (before || first.size() > 1) whole = std::max(whole, most);
      all = std::max(all, most);
    }
  }
  return {whole, all - whole};
}

std::int64_t bytes_of_activations(const ModelConfig& c, std::int64_t rows, std::int64_t operand, bool recompute) {
  const Widths w(c);
  const std::int64_t kept = c.d_model * kStream + (w.qkv + w.heads) * operand + c.n_head * kStream;
  const std::int64_t remade =
      2 * c.d_model * operand + 4 * kStream + c.d_model * kStream + (w.up + w.activation) * operand;
  const std::int64_t ends = (1 + (c.embedding_norm ? 1 : 0)) * c.d_model * kStream + c.d_model * operand;
  return rows * (c.n_layer * kept + (recompute ? 1 : c.n_layer) * remade + ends);
}

// Elements of the largest matrix that is put together from parts before it is made ready, and of the largest of all.
struct Largest {
  std::int64_t joined, any;
  explicit Largest(const ModelConfig& c) {
    const Widths w(c);
    const std::int64_t head = c.d_model * padded_vocab(c), qkv = c.d_model * w.qkv, up = c.d_model * w.up;
    joined = std::max({qkv, c.gated ? up : 0, padded_vocab(c) == c.vocab_size ? 0 : head});
    any = std::max({qkv, up, head, w.heads * c.d_model, c.d_ff * c.d_model});
  }
};

std::int64_t bytes_of_work(const ModelConfig& c, std::int64_t rows, std::int64_t ctx, std::int64_t operand,
                           bool packed) {
  const Widths w(c);
  const bool gated = c.gated;
  // delta, dx, dnorm and dy; dqkv, dheads, dup and d(activation)
  const std::int64_t of_row = 3 * c.d_model * kStream + (operand == kStream ? 0 : c.d_model * operand) +
                              (w.qkv + w.heads + w.up + (gated ? c.d_ff : 0)) * operand;
  std::int64_t logits = 1024;  // rows at once
  while (logits > 256 && logits * padded_vocab(c) > std::int64_t{1} << 25) logits /= 2;
  logits = std::min(logits, ctx);
  const Largest largest(c);
  // A product without packed weights makes its own panels of W; of bf16 it widens all operands first.
  const std::int64_t panels = packed ? 0 : largest.any * kStream;
  const std::int64_t widened = packed || operand == kStream ? 0 : (largest.any + rows * w.up) * kStream;
  // logits and their gradient
  return rows * of_row + logits * padded_vocab(c) * (kStream + (operand == kStream ? 0 : operand)) +
         largest.joined * kStream + panels + widened;
}

void check(const ModelConfig& c, const TrainingShape& shape) {
  const auto refuse = [](const char* what) {
    throw std::invalid_argument(std::string("[training_memory] expected ") + what);
  };
  if (shape.batch_size < 1 || shape.grad_accum < 1 || shape.batch_size > (std::int64_t{1} << 40) / shape.grad_accum)
    refuse("batch_size and grad_accum of at least 1, together at most 2^40");
  if (shape.adapters < 0 || shape.adapted < 0 || shape.adapted > parameter_count(c))
    refuse("adapters of at least 0 parameters, on matrices of the model");
  if (shape.ctx_len < 0) refuse("ctx_len of at least 0");
  const double tokens = static_cast<double>(shape.batch_size) * static_cast<double>(shape.grad_accum) *
                        static_cast<double>(std::max(shape.ctx_len, c.ctx_len));
  const Widths w(c);
  const double rows = static_cast<double>(std::max(shape.ctx_len, c.ctx_len)) + static_cast<double>(kTokensAtOnce);
  const double widest = static_cast<double>(c.n_layer) * static_cast<double>(c.d_model + w.qkv + w.up + w.heads);
  if (static_cast<double>(parameter_count(c)) * 64 + rows * widest * 32 + tokens * kOfToken > kLargestCount)
    refuse("sizes that some machine could hold");
}

}  // namespace

TrainingMemory training_memory(const ModelConfig& c, const TrainingShape& shape) {
  check(c, shape);
  const std::int64_t operand = shape.bf16 ? 2 : kStream;
  const std::int64_t ctx = shape.ctx_len > 0 ? shape.ctx_len : c.ctx_len;
  const std::int64_t group = std::max<std::int64_t>(1, kTokensAtOnce / ctx);  // sequences of one pass
  const std::int64_t rows = std::min(group, shape.batch_size) * ctx;
  const Slots slots = slots_of(shape.batch_size, shape.grad_accum, group);
  TrainingMemory memory;
  memory.weights = parameter_count(c) * kStream;
  memory.moments = 2 * memory.weights;
  memory.copy = shape.saves ? memory.weights + memory.moments : 0;
  const std::int64_t tied = c.tied_head ? c.vocab_size * c.d_model * kStream : 0;
  memory.gradients = slots.whole * (memory.weights + tied) + slots.partial * (other_elements(c) * kStream + tied);
  if (shape.adapters > 0) {  // the matrices as they were, gradients of these alone, and everything of the adapters
    memory.weights += (shape.adapted + shape.adapters) * kStream;
    memory.moments = 2 * shape.adapters * kStream;
    memory.copy = 0;
    memory.gradients = (slots.whole * shape.adapted + shape.adapters) * kStream;
  }
  const bool packed = packed_products(shape.bf16 ? DType::bf16 : DType::f32);  // both ways, else one dense copy
  memory.operands = (packed ? 2 : 1) * (matrix_elements(c) + c.d_model * padded_vocab(c)) * operand;
  memory.activations = bytes_of_activations(c, rows, operand, shape.recompute);
  memory.work = bytes_of_work(c, rows, ctx, operand, packed) + shape.batch_size * shape.grad_accum * ctx * kOfToken;
  memory.program = kProgram + (packed ? kPacked : 0) + (shape.threads > 0 ? shape.threads : num_threads()) * kOfThread;
  return memory;
}

std::optional<TrainingShape> training_shape_within(const ModelConfig& config, const TrainingShape& shape,
                                                   std::int64_t available) {
  TrainingShape next = shape;
  if (next.ctx_len == 0) next.ctx_len = config.ctx_len;
  const auto fits = [&] { return training_memory(config, next).total() <= available; };
  for (; next.ctx_len >= 16; next.ctx_len /= 2) {
    for (const bool recompute : {shape.recompute, true}) {
      next.recompute = recompute;
      for (next.batch_size = shape.batch_size; next.batch_size >= 1; next.batch_size /= 2) {
        next.grad_accum = (shape.batch_size * shape.grad_accum + next.batch_size - 1) / next.batch_size;
        if (fits()) return next;
      }
    }
  }
  return std::nullopt;
}

std::int64_t memory_for_this_process() {
  const std::int64_t available = available_memory();
  return available > 0 ? available + resident_memory() : 0;
}

}  // namespace qkv
