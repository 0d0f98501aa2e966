// SPDX-License-Identifier: Apache-2.0
// The operations that a model needs from a device, each forward pass with its backward pass. A device is a subdirectory
// here (cpu, reference) and a line in registry.cc.
//
// * The stream type, stream_type(), is f32 or f64: the type of parameters, residual stream, norms, softmax, loss and
//   gradients. The compute dtype is the type of the inputs and outputs of matrix products and attention: the stream
//   type or, on a device that supports it, bf16. Views are [rows, width] unless noted otherwise, and dense unless row
//   strides are allowed; rows are the rows of the current sequences, padding included.
// * Operations are queued in order and may return before they complete; to_host() waits. If memory runs out they throw
//   std::bad_alloc; a device failure is a std::runtime_error whose message begins with the operation's name.
// * Results are bit-identical for any thread count and batch. Tiling, threading and packed layouts are internal to the
//   device and appear in no argument.
// * Parameter gradients are sums over rows: one leaf per sequence, rows in order; leaves are added as the sum steps
//   specify (sum_steps.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/block_types.h"
#include "core/dropout.h"
#include "device/sequences.h"
#include "device/sum_steps.h"
#include "qkv/attention.h"
#include "qkv/device.h"
#include "qkv/kv_cache.h"
#include "qkv/model_config.h"
#include "qkv/tensor.h"

namespace qkv {

// A weight matrix W [in, out] in the form that the device multiplies with: rounded to the compute dtype, packed, in
// device memory.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual std::int64_t in() const noexcept = 0;
  virtual std::int64_t out() const noexcept = 0;
  // Bytes read by a one-row forward product.
  virtual std::size_t bytes() const noexcept = 0;
};

// xhat = (x - mean) / sqrt(variance + eps), without the mean for rmsnorm; y = xhat * gain + bias.
struct NormParameters {
  Norm kind = Norm::rmsnorm;
  double eps = 0;
  ConstView gain, bias;  // [width] of the stream type, or empty
};
// Accumulators for the gradients of a norm's parameters.
struct NormSlots {
  SlotPointers gain{}, bias{};
};

// y = x W gives dW = x^T dy: x [rows, in] and dy [rows, out] in the compute dtype, row strides allowed.
struct WeightGradient {
  ConstView x, dy;
  SlotPointers dw;  // [in, out]
};

// The rows of a token table: a plain matrix, or the columns of a prepared matrix [d_model, tokens].
struct TokenTable {
  ConstView rows;  // [vocab_size, d_model] of the stream type or bf16; or, if empty,
  const Matrix* columns = nullptr;
};

// RoPE cosines and sines: [positions, rotated / 2] each, of the stream type.
struct RotaryTable {
  ConstView cosines, sines;
};

// The part of each head that RoPE rotates: x [rows, >= heads * head_dim], the first `rotated` elements of each head.
struct RotaryHeads {
  std::int64_t heads, head_dim, rotated;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual DType stream_type() const noexcept = 0;
  virtual bool supports_compute_dtype(DType type) const noexcept = 0;
  // Whether the machine has matrix instructions for this dtype.
  virtual bool fast_compute_dtype(DType type) const = 0;

  // Runs a pass of queued operations over `rows` rows. A device may prepare for it: keep its threads together, or
  // capture the operations and replay them.
  virtual void run(std::int64_t rows, std::span<const Matrix* const> matrices, const std::function<void()>& pass) = 0;

  // Runs one(i) for i = 0 ... count - 1; the operations of different i are independent.
  virtual void for_each(std::int64_t count, const std::function<void(std::int64_t)>& one) const = 0;
  // Zero-initialized device memory.
  virtual Tensor allocate(const Dims& shape, DType dtype) const = 0;
  // Copies between dense device views and host arrays of the same type and element count; waits for queued operations.
  virtual void from_host(const void* from, const View& to) const = 0;
  virtual void to_host(const ConstView& from, void* to) const = 0;

  // --- Weights.
  // W from matrices [in, columns] of the stream type, concatenated along columns; the remaining columns are 0. Created
  // once, prepared again when the parameters have changed. Without `backward`, product_backward is unavailable.
  virtual std::unique_ptr<Matrix> matrix(DType operand, std::int64_t in, std::int64_t out) const = 0;
  virtual void prepare(Matrix& w, std::span<const ConstView> parts, bool backward) const = 0;
  // The same from W^T [columns, in].
  virtual void prepare_transposed(Matrix& w, const ConstView& transposed, bool backward) const = 0;
  // W in its stored block format, for forward products with inputs of the stream type.
  virtual void prepare_blocks(Matrix& w, std::span<const BlockColumns> parts) const = 0;

  // y = x W + bias. x [rows, in] in the compute dtype, bias [out] or empty -> y [rows, out], compute or stream type
  virtual void product(const ConstView& x, const Matrix& w, const ConstView& bias, const View& y) = 0;
  // dx = dy W^T. dy [rows, out] in the compute dtype -> dx [rows, in], compute dtype or stream type
  virtual void product_backward(const ConstView& dy, const Matrix& w, const View& dx) = 0;
  virtual void weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                                std::span<const WeightGradient> gradients) = 0;
  // db [out] = sum of the rows of dy; row strides allowed.
  virtual void bias_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& dy,
                             const SlotPointers& db) = 0;
  // Prefetches w for the product after the next one: a hint that does not affect results.
  virtual void prefetch(const Matrix& w) const = 0;

  // --- Norms.
  // x of the stream type -> y of the stream or compute type; statistics [rows, 2]: mean (0 for rmsnorm), 1 / deviation
  virtual void norm(const NormParameters& n, const ConstView& x, const View& y, const View& statistics) = 0;
  // sum = x + delta, y = norm(sum), bit-identical to add() followed by norm(). sum may alias x or delta.
  virtual void add_norm(const NormParameters& n, const ConstView& x, const ConstView& delta, const View& sum,
                        const View& y, const View& statistics) = 0;
  // dx (+)= the gradient of x, and the parameters' gradients. dx may alias dy.
  virtual void norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                             const ConstView& x, const ConstView& statistics, const ConstView& dy, bool add,
                             const View& dx, const NormSlots& slots) = 0;
  // RMSNorm of groups of `width` elements in the compute dtype: x [rows, groups * width], row strides allowed;
  // statistics [rows, groups]: 1 / deviation. gain [width].
  virtual void group_norm(const NormParameters& n, std::int64_t groups, std::int64_t width, const ConstView& x,
                          const View& y, const View& statistics) = 0;
  // On entry dx is the gradient of y; it is overwritten with the gradient of x.
  virtual void group_norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                                   std::int64_t groups, std::int64_t width, const ConstView& x,
                                   const ConstView& statistics, const View& dx, const SlotPointers& dgain) = 0;

  // --- Attention.
  // Applies RoPE to x in place; token t of each sequence is at position first_position + t, which the table must
  // contain. `back` rotates by the negative angles (the gradient).
  virtual void rotary(const Sequences& s, const RotaryTable& table, const RotaryHeads& heads,
                      std::int64_t first_position, bool back, const View& x) = 0;
  // As in qkv/attention.h; views in the compute dtype, statistics of the stream type.
  virtual void attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                         const AttentionResults& results) = 0;
  virtual void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v,
                               const AttentionOptions& options, const AttentionSteps& steps,
                               const AttentionResults& results) = 0;
  virtual void attention_backward(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                                  const ConstView& lse, const ConstView& dout, const AttentionOptions& options,
                                  const AttentionGradients& gradients) = 0;
  // dsinks [n_head] = - sum over rows of exp(sink - lse) (dout . out). out, dout [batch, n_head, ctx, d_v], lse [batch,
  // n_head, ctx], sinks [n_head]
  virtual void sink_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& out,
                             const ConstView& dout, const ConstView& lse, const ConstView& sinks,
                             const SlotPointers& dsinks) = 0;
  // Appends k and v [1, n_kv_head, new, d] to the cache, then computes attention of q [1, n_head, new, d_k] -> out,
  // compute dtype.
  virtual void attend(KvCache& cache, const ConstView& q, const ConstView& k, const ConstView& v,
                      const AttentionOptions& options, const View& out) = 0;
  // --- MLP. up [rows, d_ff], or gated [rows, 2 * d_ff] (gate, then up) -> a [rows, d_ff]; all in the compute dtype
  //   a = f(up); gated: a = f(gate) * up. If not gated, a may alias up.
  virtual void activation(Activation kind, bool gated, const ConstView& up, const View& a) = 0;
  // da -> dup, shaped like up. If not gated, dup may alias da; for relu, up may be a.
  virtual void activation_backward(Activation kind, bool gated, const ConstView& up, const ConstView& da,
                                   const View& dup) = 0;

  // --- Embedding and loss.
  // x = scale * table[token] + positions[first_position + t]; tokens [batch, ctx] on the host; rows of padding are 0
  // and their tokens are ignored; positions [>= ctx, d_model] or empty.
  virtual void embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
                     const TokenTable& table, double scale, const ConstView& positions, const View& x) = 0;
  // dx -> gradients of the tables. `touched` lists, per slot past 0, the rows of the token table that may be nonzero;
  // the slots of dtable named in the steps have memory, and those past slot 0 are zero before and after the call.
  virtual void embed_backward(const Sequences& s, std::span<const SumStep> steps, std::span<const std::int32_t> tokens,
                              double scale, const ConstView& dx, const Dims& table, const SlotPointers& dtable,
                              std::span<std::vector<std::int32_t>* const> touched, const Dims& positions,
                              const SlotPointers& dpositions) = 0;
  // logits [rows, padded] of the stream type, of which only the first `vocab` columns are used; targets [rows] on the
  // host, -1: ignored -> losses [rows] of f64, 0 where ignored, and unless dlogits is empty
  //   dlogits = scale * (softmax(logits) - onehot(target)), 0 where ignored and in columns >= vocab
  // dlogits [rows, padded] in the compute dtype, may alias logits, which are overwritten.
  virtual void cross_entropy(std::int64_t vocab, const View& logits, std::span<const std::int32_t> targets,
                             double scale, const View& dlogits, const View& losses) = 0;

  // --- Elementwise: dense views of equal size.
  virtual void add(const ConstView& a, const ConstView& b, const View& sum) = 0;  // sum may alias a or b
  virtual void scale(double factor, const View& x) = 0;
  virtual void add_one(const ConstView& x, const View& y) const = 0;  // y = x + 1, of the stream type
  virtual void softcap(double cap, const View& x) = 0;                // x = cap * tanh(x / cap)
  // dx *= 1 - (y / cap)^2, where y is the result of softcap(); y of the stream type, dx of either type.
  virtual void softcap_backward(double cap, const ConstView& y, const View& dx) = 0;
  virtual void convert(const ConstView& from, const View& to) const = 0;  // rounds to or widens from the compute dtype
  virtual void fill_zero(const View& x) = 0;
  // y = x / (1 - p) where element first + i of the dropout's array is kept, else 0; y of either type, may alias x.
  virtual void dropout(const Dropout& dropout, std::int64_t first, const ConstView& x, const View& y) = 0;
};

// A device has no state visible to callers and may be shared by several models, each using it from one thread at a
// time. qkv/device.h lists the devices. Throws std::invalid_argument that lists the names if `name` is unknown.
std::shared_ptr<Device> find_device(std::string_view name);

}  // namespace qkv
