// SPDX-License-Identifier: Apache-2.0
// Decoder-only language models: a configuration, named parameters, forward, loss and gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/gradient_sum.h"
#include "qkv/model_config.h"
#include "qkv/model_state.h"
#include "qkv/stored_parameters.h"
#include "qkv/tensor.h"

namespace qkv {

class TraceSink;  // qkv/trace.h

// Token sequences, each of ctx tokens; target t is the token after tokens 0 ... t.
struct Batch {
  std::int64_t batch = 0;
  std::int64_t ctx = 0;
  std::span<const std::int32_t> tokens;   // [batch, ctx]
  std::span<const std::int32_t> targets;  // [batch, ctx]; -1: ignored
  std::span<const std::int64_t> lengths;  // [batch] or empty: tokens past a sequence's length are padding
};

struct Loss {
  double sum = 0;          // of -ln p(target), in nats, over the targets that are not -1
  std::int64_t count = 0;  // such targets
  double mean() const noexcept { return count ? sum / static_cast<double>(count) : 0; }
};

// Seconds by operation, forward and backward; `projections` are W_Q, W_K, W_V and W_O.
struct ModelProfile {
  double attention = 0, projections = 0, mlp = 0, norms = 0, head = 0, embedding = 0;
};

// Dropout of attention weights and of each block's output (residual dropout), only in loss_and_gradients. The mask
// depends only on (seed, step, layer, index of the sequence in its step, element), so it is the same for any number of
// threads and any split into micro-batches.
struct ModelDropout {
  double p = 0;  // 0 (off) <= p < 1
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// A model computes in f32, or in f64 for tests (the same code with simple matmuls). The compute dtype of matmuls and
// attention may be bf16; parameters, residual stream, norms, softmax, loss and gradients stay f32. Not thread-safe; it
// uses qkv::num_threads() threads internally.
class Model {
  struct Impl;

 public:
  // Random parameters of the seed (normal, deviation 0.02; residual projections 0.02 / sqrt(2 n_layer); the head at
  // most sqrt(0.1 / d_model), a tied one at most ln(1 + 0.03 vocab_size) / d_model, so that the loss starts within 0.1
  // of ln(vocab_size); gains 1, biases 0). dtype: DType::f32 or DType::f64.
  explicit Model(const ModelConfig& config, std::uint64_t seed = 0, DType dtype = DType::f32);
  // The same on a device, by name (qkv/device.h), in that device's type. Throws std::invalid_argument.
  Model(const ModelConfig& config, std::uint64_t seed, std::string_view device);
  // With given parameters in the flat order, all f32 or all f64. Throws std::invalid_argument if their number, shapes
  // or types are wrong.
  Model(const ModelConfig& config, std::vector<Tensor> parameters);
  // For inference only, with matrices in the type the file stores: no f32 copy is made. Whatever needs parameters
  // (parameters(), gradients, set_compute_dtype(), saving) throws std::invalid_argument. Throws what `source` throws.
  Model(const ModelConfig& config, const StoredParameters& source, WeightType type = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelConfig& config() const noexcept;
  DType dtype() const noexcept;
  std::string_view device() const noexcept;  // name
  // A copy of the model on another device, with parameters converted to that device's type. Throws
  // std::invalid_argument.
  Model on_device(std::string_view device) const;
  const std::vector<ParameterInfo>& infos() const noexcept;
  // In the flat order, [i] has infos()[i].shape.
  const std::vector<Tensor>& parameters() const;
  // Mutable access: *model.change_parameters(). A model computes with a copy of its matrices packed for fast matmuls;
  // it is repacked by the first computation after an access has ended, and by every computation while one exists.
  class ParameterAccess {
   public:
    ParameterAccess(ParameterAccess&& other) noexcept;
    ParameterAccess& operator=(ParameterAccess&&) = delete;
    ~ParameterAccess();
    // Tensors may be replaced by others of the same shape and type; otherwise the next computation throws
    // std::invalid_argument.
    std::vector<Tensor>& operator*() const noexcept;
    std::vector<Tensor>* operator->() const noexcept { return &**this; }
    Tensor& operator[](std::size_t i) const noexcept { return (**this)[i]; }

   private:
    friend class Model;
    explicit ParameterAccess(Impl& impl) noexcept;
    Impl& impl_;  // the model must outlive the access, but may be moved
  };
  ParameterAccess change_parameters();

  // Compute dtype of matmuls and attention: DType::f32 (default) or bf16; always f64 for an f64 model. Throws
  // std::invalid_argument. bf16 works on every machine and is fast where fast_bf16() is true.
  void set_compute_dtype(DType compute_dtype);
  DType compute_dtype() const noexcept;
  // Whether the model was created for inference only.
  bool inference_only() const noexcept;
  // Bytes of matrices read per decoded token; known once they have been packed (by any computation).
  std::size_t weight_bytes() const noexcept;
  // Activation checkpointing: loss_and_gradients stores only each layer's input, q, k, v and attention output, and
  // recomputes the rest. Less than half the activation memory, about a seventh more work, bit-identical.
  void set_recompute(bool recompute);
  // Throws std::invalid_argument unless 0 <= p < 1.
  void set_dropout(const ModelDropout& dropout);
  // Accumulates time per operation into the profile, which must outlive its use; null: stop.
  void set_profile(ModelProfile* profile);

  // Zeros shaped like the parameters, for gradients or optimizer moments.
  std::vector<Tensor> zeros_like_parameters() const;

  // Logits of all positions. Throws std::invalid_argument for a token outside the vocabulary or ctx > ctx_len. A sink
  // receives, and may change, intermediate activations (qkv/trace.h); null: none, at no cost.
  Tensor logits(const Batch& batch, TraceSink* sink = nullptr);  // [batch, ctx, vocab_size]
  // Applies the final norm and the head to a residual stream: bit-identical logits if `stream` is the last layer's
  // resid_post, the logit lens for any other layer. stream [..., d_model], contiguous, of the model's type ->
  // [..., vocab_size]. Throws std::invalid_argument.
  Tensor unembed(const ConstView& stream);
  Loss loss(const Batch& batch);
  // Adds scale * d(loss.sum) / d(parameter) to the step's sum; the batch's sequences are the next ones of the step. Use
  // scale = 1 / (targets of the whole step that are not -1), so that every target has equal weight across
  // micro-batches.
  Loss loss_and_gradients(const Batch& batch, double scale, GradientSum& sum);
  // The same for a batch that is a whole step, added to gradients in the flat order.
  Loss loss_and_gradients(const Batch& batch, double scale, std::vector<Tensor>& gradients);

  // Prefill and decode: appends any number of tokens to the state and writes the last one's logits, [vocab_size],
  // unless `logits` is empty. Throws std::invalid_argument if the state would exceed ctx_len; the state is then
  // unchanged. A state's caches have the compute dtype unless another type is given, to which keys and values are
  // rounded; only with the compute dtype are results bit-identical to logits().
  ModelState make_state() const;
  ModelState make_state(DType type) const;
  void decode(std::span<const std::int32_t> tokens, ModelState& state, std::span<float> logits);
  // The same for several sequences at once, reading the weights only once; bit-identical to separate calls. Each part
  // needs its own state. Throws as decode() does; no state is then changed.
  void decode_batch(std::span<const DecodePart> parts);

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether this machine has bf16 matmul instructions.
bool fast_bf16();

}  // namespace qkv
