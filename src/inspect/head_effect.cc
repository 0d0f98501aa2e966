// SPDX-License-Identifier: Apache-2.0
// The effect of a head: its output replaced by zero or by its output on another text (Vig et al., "Causal mediation
// analysis", 2020; Meng et al., "Locating and editing factual associations", 2022).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "inspect/checks.h"
#include "inspect/probabilities.h"
#include "model/non_finite.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// Records z of some heads, as bytes in its own type: [ctx, v_head_dim] each.
class KeepHeads : public TraceSink {
 public:
  explicit KeepHeads(std::span<const HeadId> heads) : heads_(heads), kept(heads.size()) {}
  bool wants(TraceSite site, std::int64_t layer) const override {
    return site == TraceSite::z &&
           std::any_of(heads_.begin(), heads_.end(), [=](const HeadId& id) { return id.layer == layer; });
  }
  void visit(const Traced& traced) override;

 private:
  std::span<const HeadId> heads_;

 public:
  std::vector<std::vector<std::byte>> kept;  // [heads]
};

// Row t of head h of z [1, ctx, n_head, v_head_dim], whose last axis has stride 1.
std::size_t row_bytes(const ConstView& z) { return static_cast<std::size_t>(z.shape[3]) * dtype_size(z.dtype); }
std::size_t row_offset(const ConstView& z, std::int64_t t, std::int64_t h) {
  return static_cast<std::size_t>(t * z.strides[1] + h * z.strides[2]) * dtype_size(z.dtype);
}

void KeepHeads::visit(const Traced& traced) {
  const ConstView& z = traced.values;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    if (heads_[i].layer != traced.layer) continue;
    for (std::int64_t t = 0; t < z.shape[1]; ++t) {
      const auto* row = static_cast<const std::byte*>(z.data) + row_offset(z, t, heads_[i].head);
      kept[i].insert(kept[i].end(), row, row + row_bytes(z));
    }
  }
}

class ChangeHeads : public TraceSink {
 public:
  ChangeHeads(std::span<const HeadId> zeroed, std::span<const HeadId> patched,
              const std::vector<std::vector<std::byte>>& other)
      : zeroed_(zeroed), patched_(patched), other_(other) {}
  bool wants(TraceSite site, std::int64_t) const override { return site == TraceSite::z; }
  void visit(const Traced& traced) override {
    const View& z = traced.writable;
    auto* data = static_cast<std::byte*>(z.data);
    const std::size_t bytes = row_bytes(z);
    for (const HeadId& id : zeroed_)
      for (std::int64_t t = 0; id.layer == traced.layer && t < z.shape[1]; ++t)
        std::memset(data + row_offset(z, t, id.head), 0, bytes);
    for (std::size_t i = 0; i < patched_.size(); ++i) {
      if (patched_[i].layer != traced.layer) continue;
      const std::int64_t ctx = z.shape[1], length = static_cast<std::int64_t>(other_[i].size() / bytes);
      for (std::int64_t back = 1; back <= std::min(ctx, length); ++back)
        std::memcpy(data + row_offset(z, ctx - back, patched_[i].head),
                    other_[i].data() + static_cast<std::size_t>(length - back) * bytes, bytes);
    }
  }

 private:
  std::span<const HeadId> zeroed_, patched_;
  const std::vector<std::vector<std::byte>>& other_;  // [patched]
};

bool same(const HeadId& a, const HeadId& b) { return a.layer == b.layer && a.head == b.head; }

void check_heads(const ModelConfig& c, std::span<const HeadId> zeroed, std::span<const HeadId> patched) {
  for (const auto& list : {zeroed, patched})
    for (const HeadId& id : list)
      if (const std::int64_t heads = id.layer >= 0 && id.layer < c.n_layer ? c.layer(id.layer).n_head : c.n_head;
          id.layer < 0 || id.layer >= c.n_layer || id.head < 0 || id.head >= heads)
        refuse_inspect("heads below layer " + std::to_string(c.n_layer) + " and head " + std::to_string(heads),
                       std::to_string(id.layer) + "." + std::to_string(id.head));
  for (const HeadId& a : zeroed)
    for (const HeadId& b : patched)
      if (same(a, b))
        refuse_inspect("each head either zeroed or patched",
                       std::to_string(a.layer) + "." + std::to_string(a.head) + " in both");
}

// Next-token distribution after the last token. [vocab_size]
std::vector<double> next_token(Model& model, std::span<const std::int32_t> tokens, TraceSink* sink) {
  const auto ctx = static_cast<std::int64_t>(tokens.size()), vocab = model.config().vocab_size;
  const Tensor logits = model.logits({1, ctx, tokens, {}, {}}, sink);  // [1, ctx, vocab_size]
  require_finite("inspect", "logits", model, logits);
  std::vector<float> last(static_cast<std::size_t>(vocab));  // [vocab_size]
  for (std::int64_t i = 0; i < vocab; ++i)
    last[static_cast<std::size_t>(i)] = logits.dtype() == DType::f64
                                            ? static_cast<float>(logits.data<double>()[(ctx - 1) * vocab + i])
                                            : logits.data<float>()[(ctx - 1) * vocab + i];
  return softmax_row(last.data(), vocab);
}

}  // namespace

HeadEffect head_effect(Model& model, std::span<const std::int32_t> tokens, std::span<const HeadId> zeroed,
                       std::span<const HeadId> patched, std::span<const std::int32_t> other) {
  if (tokens.empty()) refuse_inspect("a text of at least one token", "none");
  check_heads(model.config(), zeroed, patched);
  if (!patched.empty() && other.empty()) refuse_inspect("another text to patch from", "none");
  KeepHeads keep(patched);
  if (!patched.empty()) model.logits({1, static_cast<std::int64_t>(other.size()), other, {}, {}}, &keep);
  ChangeHeads change(zeroed, patched, keep.kept);
  const std::vector<double> before = next_token(model, tokens, nullptr);  // [vocab_size]
  const std::vector<double> after = next_token(model, tokens, &change);   // [vocab_size]
  HeadEffect effect;
  effect.before.assign(before.begin(), before.end());
  effect.after.assign(after.begin(), after.end());
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] > 0) effect.kl += before[i] * std::log(before[i] / after[i]);
  return effect;
}

}  // namespace qkv
