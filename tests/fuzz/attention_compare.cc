// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <sstream>

#include "attention/arrays.h"
#include "fuzz/attention_case.h"

namespace qkv::test {
namespace {

constexpr double kSentinel = -12345;

// Multiples of naive.h's bounds, as in tests/attention/draws_test.cc: a few roundings of the accumulation type, and
// with two-byte storage half a unit per rounded probability and of the result.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 2 * 0x1p-53;
    case DType::f32:
      return 8 * 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

// Half a unit in the last place of a result's type: relative, and absolute at its smallest number.
double rounding(DType dtype) { return dtype == DType::f16 ? 0x1p-11 : (dtype == DType::bf16 ? 0x1p-8 : 0); }
double least(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : 0x1p-126; }
double greatest(DType dtype) { return dtype == DType::f16 ? 65000 : (dtype == DType::f64 ? 1e300 : 3e38); }

class Run {
 public:
  Run(const AttentionCase& c, AttentionPath path, DType dtype)
      : c_(c), in_(c.input), dtype_(dtype), draw_(c.layout_seed, 2) {
    exact_ = dtype == DType::f64;
    sums_ = exact_ ? DType::f64 : DType::f32;
    options_ = in_.options;
    options_.path = path;
    if (in_.has_mask) {
      mask_.emplace(in_.mask_shape.rank() < 3 ? Tensor(in_.mask_shape, mask_type()) : Tensor());
      if (in_.mask_shape.rank() < 3) {
        fill(*mask_, in_.mask);
        options_.mask = *mask_;
      } else {
        strided_mask_.emplace(in_.mask_shape, mask_type(), draw_, in_.boolean ? 0 : kNaN);
        fill(strided_mask_->view(), in_.mask);
        options_.mask = strided_mask_->view();
      }
    }
    if (!in_.slopes.empty()) options_.alibi_slopes = slopes_ = make({in_.n_head}, in_.slopes);
    if (!in_.sinks.empty()) options_.sinks = sinks_ = make({in_.n_head}, in_.sinks);
  }

  std::string compare(const NaiveOutput& expected) {
    const Dims q{in_.batch, in_.n_head, in_.q_len, in_.d_k}, k{in_.batch, in_.n_kv_head, in_.kv_len, in_.d_k};
    const Dims v{in_.batch, in_.n_kv_head, in_.kv_len, in_.d_v}, o{in_.batch, in_.n_head, in_.q_len, in_.d_v};
    const StridedArray q_array = input(q, in_.q, dtype_), k_array = input(k, in_.k, dtype_);
    const StridedArray v_array = input(v, in_.v, dtype_), dout = input(o, in_.dout, exact_ ? dtype_ : c_.dout_dtype);
    StridedArray out = output(o, exact_ ? sums_ : c_.out_dtype), lse = output({o[0], o[1], o[2]}, sums_);
    StridedArray probs = output({o[0], o[1], o[2], in_.kv_len}, sums_);
    attention(q_array.view(), k_array.view(), v_array.view(), options_,
              {out.view(), lse.view(), c_.wants_probs ? probs.view() : View{}});
    comparable_ = c_.forward_comparable;
    check("out", out, expected.out);
    check("lse", lse, expected.lse);
    if (c_.wants_probs) check("probs", probs, expected.probs);

    const DType gradient = exact_ ? sums_ : c_.gradient_dtype;
    StridedArray dq = output(q, gradient), dk = output(k, gradient), dv = output(v, gradient);
    const bool wants_dmask = in_.has_mask && !in_.boolean;
    Tensor dmask(in_.mask_shape, gradient), dsinks({in_.n_head}, gradient);
    attention_backward(q_array.view(), k_array.view(), v_array.view(), out.view(), lse.view(), dout.view(), options_,
                       {dq.view(), dk.view(), dv.view(), wants_dmask ? dmask.view() : View{},
                        in_.sinks.empty() ? View{} : dsinks.view()});
    comparable_ = c_.backward_comparable;
    check("dq", dq, expected.dq);
    check("dk", dk, expected.dk);
    check("dv", dv, expected.dv);
    if (wants_dmask) check("dmask", ConstView(dmask), expected.dmask);
    if (!in_.sinks.empty()) check("dsinks", ConstView(dsinks), expected.dsinks);
    return found_.str();
  }

 private:
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  DType mask_type() const { return in_.boolean ? DType::boolean : c_.mask_dtype; }
  StridedArray input(const Dims& shape, const std::vector<double>& from, DType dtype) {
    StridedArray array(shape, dtype, draw_, kNaN);
    fill(array.view(), from);
    return array;
  }
  StridedArray output(const Dims& shape, DType dtype) { return {shape, dtype, draw_, kSentinel}; }

  void check(const char* name, const StridedArray& array, const Bounded& expected) {
    if (!array.gaps_untouched()) found_ << name << ": written between the elements\n";
    check(name, ConstView(array.view()), expected);
  }

  bool agrees(double got, double want, double bound, DType stored) const {
    if (!std::isfinite(want)) {
      if (c_.infinite) return !std::isfinite(got);
      return std::isnan(want) ? std::isnan(got) : got == want;
    }
    const double error = tolerance(dtype_) * bound + rounding(stored) * std::abs(want);
    if (!(bound < greatest(stored) / 4) || std::abs(want) + error > greatest(stored)) return true;
    return std::abs(got - want) <= error + least(stored) + (exact_ ? 0x1p-1000 : c_.floor);
  }

  void check(const char* name, const ConstView& view, const Bounded& expected) {
    if (!comparable_) return;
    const std::vector<double> got = values(view);
    for (std::size_t n = 0; n < got.size(); ++n) {
      if (agrees(got[n], expected.values[n], expected.bounds[n], view.dtype)) continue;
      found_ << (exact_ ? "reference f64 " : (options_.path == AttentionPath::tiled ? "tiled " : "reference ")) << name
             << "[" << n << "] expected " << expected.values[n] << " found " << got[n] << " bound "
             << tolerance(dtype_) * expected.bounds[n] << " floor " << c_.floor << "\n";
      return;
    }
  }

  const AttentionCase& c_;
  const NaiveInput& in_;
  DType dtype_, sums_;
  bool exact_, comparable_ = true;
  Draw draw_;
  AttentionOptions options_;
  std::optional<Tensor> mask_;
  std::optional<StridedArray> strided_mask_;
  Tensor slopes_, sinks_;
  std::ostringstream found_;
};

}  // namespace

std::string differences(const AttentionCase& c) {
  const NaiveOutput expected = naive_attention(c.input);
  std::string found = Run(c, AttentionPath::tiled, c.dtype).compare(expected);
  if (c.reference_too) {
    found += Run(c, AttentionPath::reference, c.dtype).compare(expected);
    found += Run(c, AttentionPath::reference, DType::f64).compare(expected);
  }
  return found.empty() ? found : c.words() + "\n" + found;
}

}  // namespace qkv::test
