// SPDX-License-Identifier: Apache-2.0
// Every operation in f64, written directly from the equations: the reference that other devices are tested against.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "qkv/device_facts.h"

namespace qkv {

class ReferenceDevice : public Device {
 public:
  static DeviceFacts facts();
  std::string_view name() const noexcept override;
  DType stream_type() const noexcept override;
  bool supports_compute_dtype(DType type) const noexcept override;
  bool fast_compute_dtype(DType type) const override;
  void run(std::int64_t rows, std::span<const Matrix* const> matrices, const std::function<void()>& pass) override;
  void for_each(std::int64_t count, const std::function<void(std::int64_t)>& one) const override;
  Tensor allocate(const Dims& shape, DType dtype) const override;
  void from_host(const void* from, const View& to) const override;
  void to_host(const ConstView& from, void* to) const override;
  std::unique_ptr<Matrix> matrix(DType operand, std::int64_t in, std::int64_t out) const override;
  void prepare(Matrix& w, std::span<const ConstView> parts, bool backward) const override;
  void prepare_transposed(Matrix& w, const ConstView& transposed, bool backward) const override;
  void prepare_blocks(Matrix& w, std::span<const BlockColumns> parts) const override;
  void product(const ConstView& x, const Matrix& w, const ConstView& bias, const View& y) override;
  void product_backward(const ConstView& dy, const Matrix& w, const View& dx) override;
  void weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                        std::span<const WeightGradient> gradients) override;
  void bias_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& dy,
                     const SlotPointers& db) override;
  void prefetch(const Matrix& w) const override;
  void norm(const NormParameters& n, const ConstView& x, const View& y, const View& statistics) override;
  void add_norm(const NormParameters& n, const ConstView& x, const ConstView& delta, const View& sum, const View& y,
                const View& statistics) override;
  void norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n, const ConstView& x,
                     const ConstView& statistics, const ConstView& dy, bool add, const View& dx,
                     const NormSlots& slots) override;
  void group_norm(const NormParameters& n, std::int64_t groups, std::int64_t width, const ConstView& x, const View& y,
                  const View& statistics) override;
  void group_norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                           std::int64_t groups, std::int64_t width, const ConstView& x, const ConstView& statistics,
                           const View& dx, const SlotPointers& dgain) override;
  void rotary(const Sequences& s, const RotaryTable& table, const RotaryHeads& heads, std::int64_t first_position,
              bool back, const View& x) override;
  void attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                 const AttentionResults& results) override;
  void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                       const AttentionSteps& steps, const AttentionResults& results) override;
  void attention_backward(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                          const ConstView& lse, const ConstView& dout, const AttentionOptions& options,
                          const AttentionGradients& gradients) override;
  void sink_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& out, const ConstView& dout,
                     const ConstView& lse, const ConstView& sinks, const SlotPointers& dsinks) override;
  void attend(KvCache& cache, const ConstView& q, const ConstView& k, const ConstView& v,
              const AttentionOptions& options, const View& out) override;
  void activation(Activation kind, bool gated, const ConstView& up, const View& a) override;
  void activation_backward(Activation kind, bool gated, const ConstView& up, const ConstView& da,
                           const View& dup) override;
  void embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
             const TokenTable& table, double scale, const ConstView& positions, const View& x) override;
  void embed_backward(const Sequences& s, std::span<const SumStep> steps, std::span<const std::int32_t> tokens,
                      double scale, const ConstView& dx, const Dims& table, const SlotPointers& dtable,
                      std::span<std::vector<std::int32_t>* const> touched, const Dims& positions,
                      const SlotPointers& dpositions) override;
  void cross_entropy(std::int64_t vocab, const View& logits, std::span<const std::int32_t> targets, double scale,
                     const View& dlogits, const View& losses) override;
  void add(const ConstView& a, const ConstView& b, const View& sum) override;
  void scale(double factor, const View& x) override;
  void add_one(const ConstView& x, const View& y) const override;
  void softcap(double cap, const View& x) override;
  void softcap_backward(double cap, const ConstView& y, const View& dx) override;
  void convert(const ConstView& from, const View& to) const override;
  void fill_zero(const View& x) override;
  void dropout(const Dropout& dropout, std::int64_t first, const ConstView& x, const View& y) override;
};

}  // namespace qkv
