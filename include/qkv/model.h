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

// Token sequences, all of ctx tokens; target t is the token that should follow tokens 0 ... t.
struct Batch {
  std::int64_t batch = 0;
  std::int64_t ctx = 0;
  std::span<const std::int32_t> tokens;   // [batch, ctx]
  std::span<const std::int32_t> targets;  // [batch, ctx]; -1: ignored
  std::span<const std::int64_t> lengths;  // [batch] or empty: tokens past a sequence's length are padding
};

struct Loss {
  double sum = 0;          // of -ln p(target), in nats, over the real targets
  std::int64_t count = 0;  // real targets
  double mean() const noexcept { return count ? sum / static_cast<double>(count) : 0; }
};

// Seconds by kind of work, forward and backward; `projections` are W_Q, W_K, W_V and W_O.
struct ModelProfile {
  double attention = 0, projections = 0, mlp = 0, norms = 0, head = 0, embedding = 0;
};

// Dropout of attention's probabilities and of what each block adds to the stream, in loss_and_gradients alone. What is
// dropped is a function of (seed, step, layer, number of the sequence in its step, element): the same at any number of
// threads and however a step is cut.
struct ModelDropout {
  double p = 0;  // from 0 (off) to below 1
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// A model computes in f32, or in f64 for tests (the same code, plain products). The operands of its matrix products and
// of attention may be bf16: parameters, the residual stream, norms, softmax, loss and gradients stay f32. Not
// thread-safe; computing uses qkv::num_threads() threads inside.
class Model {
  struct Impl;

 public:
  // Parameters drawn from the seed (normal, deviation 0.02; residual projections 0.02 / sqrt(2 n_layer); the head at
  // most sqrt(0.1 / d_model), so that training starts near ln(vocab_size); gains 1,
  // biases 0). dtype: DType::f32 or DType::f64.
  explicit Model(const ModelConfig& config, std::uint64_t seed = 0, DType dtype = DType::f32);
  // The same on a device by name (qkv/device.h), in the type that it computes in. Throws std::invalid_argument.
  Model(const ModelConfig& config, std::uint64_t seed, std::string_view device);
  // With given parameters, one tensor each in the flat order, all f32 or all f64. Throws std::invalid_argument if they
  // do not fit.
  Model(const ModelConfig& config, std::vector<Tensor> parameters);
  // For reading alone, with matrices kept as a file stores them: no f32 copy of the model is made. What needs
  // parameters (parameters() itself, gradients, set_compute_dtype(), saving) throws std::invalid_argument. Throws what
  // reading throws.
  Model(const ModelConfig& config, const StoredParameters& source, WeightType type = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelConfig& config() const noexcept;
  DType dtype() const noexcept;
  std::string_view device() const noexcept;  // its name
  // The same model on another device, whose type its parameters are rounded or widened to. Throws
  // std::invalid_argument.
  Model on_device(std::string_view device) const;
  const std::vector<ParameterInfo>& infos() const noexcept;
  // In the flat order, [i] has infos()[i].shape.
  const std::vector<Tensor>& parameters() const;
  // The same to be changed: *model.change_parameters(). A model computes with a copy made ready for fast products,
  // which is made again by the next computation after an access has ended, and by every computation while one exists.
  class ParameterAccess {
   public:
    ParameterAccess(ParameterAccess&& other) noexcept;
    ParameterAccess& operator=(ParameterAccess&&) = delete;
    ~ParameterAccess();
    // Tensors may be replaced by others of the same shape and type; the next computation throws std::invalid_argument
    // if they do not fit.
    std::vector<Tensor>& operator*() const noexcept;
    std::vector<Tensor>* operator->() const noexcept { return &**this; }
    Tensor& operator[](std::size_t i) const noexcept { return (**this)[i]; }

   private:
    friend class Model;
    explicit ParameterAccess(Impl& impl) noexcept;
    Impl& impl_;  // of the model, which must outlive the access; it may be moved
  };
  ParameterAccess change_parameters();

  // What the operands of products are rounded to: DType::f32 (as a model begins) or bf16, or f64 for an f64 model,
  // which knows no other. Throws std::invalid_argument. Right on every machine; fast where fast_bf16() is true.
  void set_compute_dtype(DType compute_dtype);
  DType compute_dtype() const noexcept;
  // Whether the model was made for reading alone.
  bool inference_only() const noexcept;
  // Bytes of matrices that reading one token goes through, once they have been made ready (by any computation).
  std::size_t weight_bytes() const noexcept;
  // Whether loss_and_gradients keeps of each layer only its input, q, k, v and what the heads read, and computes the
  // rest again: less than half of the activations' memory, about a seventh more work, the same bits.
  void set_recompute(bool recompute);
  // Throws std::invalid_argument unless 0 <= p < 1.
  void set_dropout(const ModelDropout& dropout);
  // Adds up where the time goes; null: no longer. The profile must outlive its use.
  void set_profile(ModelProfile* profile);

  // Zeros shaped like the parameters: gradients, or the moments of an optimiser.
  std::vector<Tensor> zeros_like_parameters() const;

  // All positions at once. Throws std::invalid_argument on a token outside the vocabulary or ctx > ctx_len. A sink
  // sees, and may change, what the pass makes on its way (qkv/trace.h); null: nobody looks, at no cost.
  Tensor logits(const Batch& batch, TraceSink* sink = nullptr);  // [batch, ctx, vocab_size]
  // What the head makes of the stream, final norm and all: the logits if `stream` is the last layer's resid_post (the
  // same bits), and the logit lens if it is another's. stream [..., d_model], contiguous, of the model's type ->
  // [..., vocab_size]. Throws std::invalid_argument.
  Tensor unembed(const ConstView& stream);
  Loss loss(const Batch& batch);
  // Adds scale * d(loss.sum) / d(parameter) to the step's sum: the batch's sequences are the next ones of the step.
  // Give scale = 1 / (real targets of the whole step), so that accumulated micro-batches weigh every target alike.
  Loss loss_and_gradients(const Batch& batch, double scale, GradientSum& sum);
  // The same for a batch that is a step of its own, added to gradients in the flat order.
  Loss loss_and_gradients(const Batch& batch, double scale, std::vector<Tensor>& gradients);

  // Reading token by token, or in chunks: appends the tokens to the state and writes the logits of the last one,
  // [vocab_size]. Throws std::invalid_argument when the state would pass ctx_len; the state is then unchanged.
  // logits may be empty: not wanted. A state's caches are of the operands' type unless another is asked for, which
  // rounds keys and values once more; only with the operands' type does reading give the bits of logits().
  ModelState make_state() const;
  ModelState make_state(DType type) const;
  void decode(std::span<const std::int32_t> tokens, ModelState& state, std::span<float> logits);
  // The same for several sequences at once, whose weights are then read once: each part has the bits it has alone. The
  // parts' states must be different ones. Throws as decode() does; then no state is changed.
  void decode_batch(std::span<const DecodePart> parts);

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether this machine has instructions for bf16 matrix products.
bool fast_bf16();

}  // namespace qkv
