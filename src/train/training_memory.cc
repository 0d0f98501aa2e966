// SPDX-License-Identifier: Apache-2.0
#include "qkv/training_memory.h"

#include <algorithm>
#include <stdexcept>

#include "linalg/packed_product.h"
#include "model/gradient_slots.h"
#include "model/pass_size.h"
#include "os/machine.h"
#include "qkv/optimizer.h"
#include "qkv/threads.h"
#include "train/lora_training.h"

namespace qkv {
namespace {

constexpr std::int64_t kStream = 4;                  // bytes per element of weights, gradients and residual stream: f32
constexpr std::int64_t kBytesPerToken = 8;           // bytes per token and its target
constexpr std::int64_t kProgram = 22'000'000;        // resident memory of the program and its libraries
constexpr std::int64_t kPacked = 8'000'000;          // code that oneDNN generates for packed products
constexpr std::int64_t kBytesPerThread = 6'000'000;  // per thread, for tiles and panels
constexpr double kLargestCount = 1e18;               // bytes; no machine has more

// Widths of a layer's activations (src/model/activations.h), in elements per row.
struct Widths {
  std::int64_t qkv, heads, up, activation;
  explicit Widths(const LayerConfig& c)
      : qkv(c.n_head * c.head_dim + c.n_kv_head * (c.head_dim + c.v_head_dim)),
        heads(c.n_head * c.v_head_dim),
        up((c.gated ? 2 : 1) * c.d_ff),
        activation(c.activation == Activation::relu && !c.gated ? 0 : c.d_ff) {}
};

std::int64_t elements_of(const std::vector<ParameterInfo>& infos) {
  std::int64_t count = 0;
  for (const ParameterInfo& info : infos) count += element_count(info.shape);
  return count;
}

// The gradients, and partial sums for lanes of the step that wait for their siblings.
std::int64_t bytes_of_gradients(const ModelConfig& c, const std::vector<ParameterInfo>& infos,
                                const std::vector<bool>& wanted, const StepSlots& slots) {
  std::int64_t whole = 0, partial = 0;  // elements per slot
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (!wanted[i]) continue;
    // A tied embedding's gradient from the head is summed separately.
    const std::int64_t size = element_count(infos[i].shape) * (i == 0 && c.tied_head ? 2 : 1);
    whole += size;
    partial += is_layer_matrix(infos[i]) ? 0 : size;
  }
  return (slots.whole * whole + slots.partial * partial) * kStream;
}

std::int64_t bytes_of_activations(const ModelConfig& c, std::int64_t rows, std::int64_t operand, bool recompute) {
  std::int64_t kept = 0, recomputed = 0, most = 0;  // bytes per row; `most`: of one layer
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const LayerConfig& layer = c.layer(i);
    const Widths w(layer);
    const bool post_norms = layer.norm_place != NormPlace::before;
    const std::int64_t normalized = layer.qk_norm == QkNorm::none ? 0 : w.qkv - layer.n_kv_head * layer.v_head_dim;
    kept += c.d_model * kStream + (w.qkv + normalized + w.heads) * operand + layer.n_head * kStream;
    const std::int64_t again = 2 * c.d_model * operand + 4 * kStream + (post_norms ? 3 : 1) * c.d_model * kStream +
                               (w.up + w.activation) * operand;
    recomputed += again;
    most = std::max(most, again);
  }
  const std::int64_t ends = (1 + (c.embedding_norm ? 1 : 0)) * c.d_model * kStream + c.d_model * operand;
  return rows * (kept + (recompute ? most : recomputed) + ends);
}

// Elements of the largest matrix concatenated from parts before it is prepared, of the largest matrix overall, and of
// the widest row of the MLP.
struct Largest {
  std::int64_t joined, any, up = 0;
  explicit Largest(const ModelConfig& c) {
    const std::int64_t d = c.d_model;
    any = d * padded_vocab(c);
    joined = padded_vocab(c) == c.vocab_size ? 0 : any;
    for (std::int64_t i = 0; i < c.n_layer; ++i) {
      const LayerConfig& layer = c.layer(i);
      const Widths w(layer);
      joined = std::max({joined, d * w.qkv, layer.gated ? d * w.up : 0});
      any = std::max({any, d * w.qkv, d * w.up, w.heads * d, layer.d_ff * d});
      up = std::max(up, w.up);
    }
  }
};

std::int64_t bytes_of_work(const ModelConfig& c, std::int64_t rows, std::int64_t ctx, std::int64_t operand,
                           bool packed) {
  // Bytes per row: dqkv, dheads, dup and dactivation; delta, dx and dnorm, and more for some layers.
  std::int64_t widest = 0;
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const LayerConfig& layer = c.layer(i);
    const Widths w(layer);
    const std::int64_t streams = 3 + (layer.residual == Residual::sequential ? 0 : 2) +
                                 (layer.norm_place != NormPlace::before || layer.residual_scale != 1 ? 1 : 0);
    widest = std::max(
        widest, streams * c.d_model * kStream + (w.qkv + w.heads + w.up + (layer.gated ? layer.d_ff : 0)) * operand);
  }
  if (operand != kStream) widest += c.d_model * operand;  // dy
  // Logits, their gradient, and the logits before a softcap.
  const std::int64_t of_logit = kStream + (operand == kStream ? 0 : operand) + (c.logit_softcap > 0 ? kStream : 0);
  const Largest largest(c);
  // Without packed weights, a product packs panels of W on each call; in bf16 it first widens all inputs.
  const std::int64_t panels = packed ? 0 : largest.any * kStream;
  const std::int64_t widened = packed || operand == kStream ? 0 : (largest.any + rows * largest.up) * kStream;
  return rows * widest + std::min(rows_of_logits(c), ctx) * padded_vocab(c) * of_logit + largest.joined * kStream +
         panels + widened;
}

void check(const ModelConfig& c, const TrainingShape& shape) {
  const auto refuse = [](const char* what) {
    throw std::invalid_argument(std::string("[training_memory] expected ") + what);
  };
  if (shape.batch_size < 1 || shape.grad_accum < 1 || shape.batch_size > (std::int64_t{1} << 40) / shape.grad_accum)
    refuse("batch_size and grad_accum of at least 1, together at most 2^40");
  if (shape.ctx_len < 0) refuse("ctx_len of at least 0");
  const double tokens = static_cast<double>(shape.batch_size) * static_cast<double>(shape.grad_accum) *
                        static_cast<double>(std::max(shape.ctx_len, c.ctx_len));
  const double rows = static_cast<double>(std::max(shape.ctx_len, c.ctx_len)) + static_cast<double>(kTokensPerPass);
  double widest = 0;
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const Widths w(c.layer(i));
    widest += static_cast<double>(c.d_model + w.qkv + w.up + w.heads);
  }
  if (static_cast<double>(parameter_count(c)) * 64 + rows * widest * 32 + tokens * kBytesPerToken > kLargestCount)
    refuse("sizes that fit in a machine's memory");
}

}  // namespace

TrainingMemory training_memory(const ModelConfig& c, const TrainingShape& shape) {
  check(c, shape);
  const std::int64_t operand = shape.bf16 ? 2 : kStream;
  const std::int64_t ctx = shape.ctx_len > 0 ? shape.ctx_len : c.ctx_len;
  const std::int64_t group = sequences_per_pass(ctx);
  const std::int64_t rows = std::min(group, shape.batch_size) * ctx;
  const StepSlots slots = slots_of_step(shape.batch_size, shape.grad_accum, group);
  const std::vector<ParameterInfo> infos = parameter_infos(c);
  const std::vector<ParameterInfo> trained = shape.adapters ? adapter_infos(*shape.adapters) : infos;
  const std::vector<bool> wanted =
      shape.adapters ? adapted_parameters(*shape.adapters, infos.size()) : std::vector<bool>(infos.size(), true);
  const OptimizerPlan optimizer = plan_optimizer(shape.optimizer, trained);
  TrainingMemory memory;
  memory.weights = elements_of(infos) * kStream;
  memory.moments = optimizer.elements() * kStream;
  memory.gradients = bytes_of_gradients(c, infos, wanted, slots);
  if (shape.adapters) {  // the original matrices, the adapters, and their gradients
    for (std::size_t i = 0; i < infos.size(); ++i)
      memory.weights += wanted[i] ? element_count(infos[i].shape) * kStream : 0;
    memory.weights += elements_of(trained) * kStream;
    memory.gradients += elements_of(trained) * kStream;
  } else if (shape.saves) {
    memory.copy = memory.weights + memory.moments - optimizer.work * kStream;
  }
  const bool packed = packed_products(shape.bf16 ? DType::bf16 : DType::f32);  // packed both ways, else one dense copy
  std::int64_t matrices = c.d_model * padded_vocab(c);
  for (const ParameterInfo& info : infos) matrices += is_layer_matrix(info) ? element_count(info.shape) : 0;
  memory.operands = (packed ? 2 : 1) * matrices * operand;
  memory.activations = bytes_of_activations(c, rows, operand, shape.recompute);
  memory.work =
      bytes_of_work(c, rows, ctx, operand, packed) + shape.batch_size * shape.grad_accum * ctx * kBytesPerToken;
  memory.program =
      kProgram + (packed ? kPacked : 0) + (shape.threads > 0 ? shape.threads : num_threads()) * kBytesPerThread;
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
