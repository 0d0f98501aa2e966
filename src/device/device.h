// SPDX-License-Identifier: Apache-2.0
// What a model needs of the machine it runs on: whole operations, each forward pass beside its backward pass. A device
// is a folder beside this file (cpu, reference) and a line in registry.cc.
//
// * The stream type is that of parameters, the residual stream, norms, softmax, loss and gradients: stream_type(), f32
//   or f64. The operand type is that of what goes into and comes out of matrix products and attention: the stream type
//   or, on a device that has it, bf16. Views below are [rows, width] unless their comment says otherwise, dense but
//   where a row stride is said to be allowed; rows are the rows of the sequences at hand, padding included.
// * Operations are queued in order and may return before they are done; to_host() waits. Work that does not fit throws
//   std::bad_alloc; a failure of the device is a std::runtime_error that begins with the operation's name.
// * Results have the same bits at any thread count and in any batch. How work is cut (tiles, threads, packed layouts)
//   is the device's own affair and appears in no argument.
// * Gradients of parameters are sums over rows: one leaf per sequence, rows in order, and the leaves are added as the
//   sum steps say (sum_steps.h).
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

// A weight matrix W [in, out] as the device multiplies with it: rounded to the operand type, packed, on the device.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual std::int64_t in() const noexcept = 0;
  virtual std::int64_t out() const noexcept = 0;
  // Bytes that a forward product of one row reads.
  virtual std::size_t bytes() const noexcept = 0;
};

// xhat = (x - mean) / sqrt(variance + eps), without the mean for rmsnorm; y = xhat * gain + bias.
struct NormParameters {
  Norm kind = Norm::rmsnorm;
  double eps = 0;
  ConstView gain, bias;  // [width] of the stream type, or empty
};
// What the gradients of a norm's parameters are added to.
struct NormSlots {
  SlotPointers gain{}, bias{};
};

// y = x W gives dW = x^T dy: x [rows, in] and dy [rows, out] of the operand type, row strides allowed.
struct WeightGradient {
  ConstView x, dy;
  SlotPointers dw;  // [in, out]
};

// Where the rows of a token table are: a matrix of numbers, or the columns of a prepared matrix [d_model, tokens].
struct TokenTable {
  ConstView rows;  // [vocab_size, d_model] of the stream type or bf16; or, if empty,
  const Matrix* columns = nullptr;
};

// Cosines and sines of rotary positions: [positions, rotated / 2] each, of the stream type.
struct RotaryTable {
  ConstView cosines, sines;
};

// The pairs of a token's heads that are rotated: x [rows, >= heads * head_dim], of each head the first `rotated`.
struct RotaryHeads {
  std::int64_t heads, head_dim, rotated;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual DType stream_type() const noexcept = 0;
  virtual bool supports_compute_dtype(DType type) const noexcept = 0;
  // Whether the machine has instructions for products of such operands.
  virtual bool fast_compute_dtype(DType type) const = 0;

  // Runs a pass of queued operations over so many rows, which a device may prepare for: keep its threads together, or
  // capture the operations and replay them.
  virtual void run(std::int64_t rows, std::span<const Matrix* const> matrices, const std::function<void()>& pass) = 0;

  // Runs one(i) for i = 0 ... count - 1, whose operations do not depend on each other's.
  virtual void for_each(std::int64_t count, const std::function<void(std::int64_t)>& one) const = 0;
  // Memory of the device, zeros.
  virtual Tensor allocate(const Dims& shape, DType dtype) const = 0;
  // Copies between dense views of the device and as many elements of the same type on the host; waits for what is
  // queued.
  virtual void from_host(const void* from, const View& to) const = 0;
  virtual void to_host(const ConstView& from, void* to) const = 0;

  // --- Weights.
  // W from matrices [in, columns] of the stream type side by side; columns past theirs are 0. Made once, prepared again
  // when the parameters have changed. Without `backward` there is no product_backward.
  virtual std::unique_ptr<Matrix> matrix(DType operand, std::int64_t in, std::int64_t out) const = 0;
  virtual void prepare(Matrix& w, std::span<const ConstView> parts, bool backward) const = 0;
  // The same from W^T [columns, in].
  virtual void prepare_transposed(Matrix& w, const ConstView& transposed, bool backward) const = 0;
  // W in the blocks that it is stored in, for forward products with operands of the stream type.
  virtual void prepare_blocks(Matrix& w, std::span<const BlockColumns> parts) const = 0;

  // y = x W + bias. x [rows, in] of the operand type, bias [out] or empty -> y [rows, out], operand or stream type
  virtual void product(const ConstView& x, const Matrix& w, const ConstView& bias, const View& y) = 0;
  // dx = dy W^T. dy [rows, out] of the operand type -> dx [rows, in], operand or stream type
  virtual void product_backward(const ConstView& dy, const Matrix& w, const View& dx) = 0;
  virtual void weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                                std::span<const WeightGradient> gradients) = 0;
  // db [out], the sum of dy's rows; row strides allowed.
  virtual void bias_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& dy,
                             const SlotPointers& db) = 0;
  // The product after the next one will read w: a hint without effect on results.
  virtual void prefetch(const Matrix& w) const = 0;

  // --- Norms.
  // x of the stream type -> y of the stream or operand type; statistics [rows, 2]: mean (0 for rmsnorm), 1 / deviation
  virtual void norm(const NormParameters& n, const ConstView& x, const View& y, const View& statistics) = 0;
  // sum = x + delta, y = norm(sum): the bits of add() and norm(). sum may be x or delta.
  virtual void add_norm(const NormParameters& n, const ConstView& x, const ConstView& delta, const View& sum,
                        const View& y, const View& statistics) = 0;
  // dx (+)= the gradient of x, and the parameters' gradients. dx may be dy.
  virtual void norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                             const ConstView& x, const ConstView& statistics, const ConstView& dy, bool add,
                             const View& dx, const NormSlots& slots) = 0;
  // RMSNorm of groups of `width` numbers, of the operand type: x [rows, groups * width], row strides allowed;
  // statistics [rows, groups]: 1 / deviation. gain [width].
  virtual void group_norm(const NormParameters& n, std::int64_t groups, std::int64_t width, const ConstView& x,
                          const View& y, const View& statistics) = 0;
  // dx is the gradient of y, replaced by that of x.
  virtual void group_norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                                   std::int64_t groups, std::int64_t width, const ConstView& x,
                                   const ConstView& statistics, const View& dx, const SlotPointers& dgain) = 0;

  // --- Attention.
  // Rotates x in place; token t of each sequence is at position first_position + t, which the table has. `back` rotates
  // by the negative angles: the gradient.
  virtual void rotary(const Sequences& s, const RotaryTable& table, const RotaryHeads& heads,
                      std::int64_t first_position, bool back, const View& x) = 0;
  // As qkv/attention.h has them; views of the operand type, statistics of the stream type.
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
  // Appends k and v [1, n_kv_head, new, d] to the cache, then attends from q [1, n_head, new, d_k] -> out, operand
  // type.
  virtual void attend(KvCache& cache, const ConstView& q, const ConstView& k, const ConstView& v,
                      const AttentionOptions& options, const View& out) = 0;
  // --- MLP. up [rows, d_ff], or gated [rows, 2 * d_ff]: gate, then up -> a [rows, d_ff]; all of the operand type
  //   a = f(up), gated a = f(gate) * up. Not gated, a may be up.
  virtual void activation(Activation kind, bool gated, const ConstView& up, const View& a) = 0;
  // da -> dup as up. Not gated, dup may be da; for relu, up may be a.
  virtual void activation_backward(Activation kind, bool gated, const ConstView& up, const ConstView& da,
                                   const View& dup) = 0;

  // --- Ends of the model.
  // x = scale * table[token] + positions[first_position + t]; tokens [batch, ctx] on the host, padding is not looked
  // at and its rows are 0; positions [>= ctx, d_model] or empty.
  virtual void embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
                     const TokenTable& table, double scale, const ConstView& positions, const View& x) = 0;
  // dx -> the tables' gradients. `touched` has, per slot past 0, the rows of the token table that may not be 0; the
  // slots of dtable that the steps name have memory, past slot 0 zeros before they are used and after.
  virtual void embed_backward(const Sequences& s, std::span<const SumStep> steps, std::span<const std::int32_t> tokens,
                              double scale, const ConstView& dx, const Dims& table, const SlotPointers& dtable,
                              std::span<std::vector<std::int32_t>* const> touched, const Dims& positions,
                              const SlotPointers& dpositions) = 0;
  // logits [rows, padded] of the stream type, of which the first `vocab` count; targets [rows] on the host, -1: ignored
  // -> losses [rows] of f64, 0 where ignored, and unless dlogits is empty
  //   dlogits = scale * (softmax(logits) - onehot(target)), 0 where ignored and in the columns from vocab on
  // dlogits [rows, padded] of the operand type, may be logits, which are overwritten.
  virtual void cross_entropy(std::int64_t vocab, const View& logits, std::span<const std::int32_t> targets,
                             double scale, const View& dlogits, const View& losses) = 0;

  // --- Arrays: any dense views of equal size.
  virtual void add(const ConstView& a, const ConstView& b, const View& sum) = 0;  // sum may be a or b
  virtual void scale(double factor, const View& x) = 0;
  virtual void add_one(const ConstView& x, const View& y) const = 0;  // y = x + 1, of the stream type
  virtual void softcap(double cap, const View& x) = 0;                // x = cap * tanh(x / cap)
  // dx *= 1 - (y / cap)^2, y the result of softcap(); y of the stream type, dx of either.
  virtual void softcap_backward(double cap, const ConstView& y, const View& dx) = 0;
  virtual void convert(const ConstView& from, const View& to) const = 0;  // rounds to, or widens from, the operand type
  virtual void fill_zero(const View& x) = 0;
  // y = x / (1 - p) where element first + i of the dropout's array is kept, else 0; y of either type, may be x.
  virtual void dropout(const Dropout& dropout, std::int64_t first, const ConstView& x, const View& y) = 0;
};

// A device has no state that callers see and may be used by several models, one thread at a time each. The list of
// devices is qkv/device.h's.
// Throws std::invalid_argument that lists the names.
std::shared_ptr<Device> find_device(std::string_view name);

}  // namespace qkv
