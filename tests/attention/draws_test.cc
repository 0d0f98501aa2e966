// SPDX-License-Identifier: Apache-2.0
// Both paths, forward and backward, against an independent implementation, over random combinations of all options.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/random_case.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

constexpr int kCases = 2000;
constexpr double kSentinel = -12345;

// Allowed error in multiples of the reference's bound. The textbook path reaches 0.3 (f64) and 2.3 (f32) roundings;
// other summation orders and a custom exp2 need somewhat more. With two-byte storage, a path may round the
// probabilities to that type: half a unit each, once for the values and once for the gradients.
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

// The arrays of a case in some layout, and the calls on them.
class Comparison {
 public:
  Comparison(const RandomCase& c, AttentionPath path, DType dtype, Draw& draw)
      : in_(c.input), dtype_(dtype), sums_(dtype == DType::f64 ? DType::f64 : DType::f32), draw_(draw) {
    options_ = in_.options;
    options_.path = path;
    if (in_.has_mask) {
      mask_ =
          in_.boolean ? make(in_.mask_shape, in_.mask, DType::boolean) : make(in_.mask_shape, in_.mask, c.mask_dtype);
      options_.mask = mask_;
    }
    if (!in_.slopes.empty()) options_.alibi_slopes = slopes_ = make({in_.n_head}, in_.slopes);
    if (!in_.sinks.empty()) options_.sinks = sinks_ = make({in_.n_head}, in_.sinks);
  }

  void compare(const NaiveOutput& expected) {
    const Dims q{in_.batch, in_.n_head, in_.q_len, in_.d_k}, k{in_.batch, in_.n_kv_head, in_.kv_len, in_.d_k};
    const Dims v{in_.batch, in_.n_kv_head, in_.kv_len, in_.d_v}, o{in_.batch, in_.n_head, in_.q_len, in_.d_v};
    const StridedArray q_array = input(q, in_.q), k_array = input(k, in_.k), v_array = input(v, in_.v);
    const StridedArray dout = input(o, in_.dout);
    StridedArray out = output(o, sums_), lse = output({o[0], o[1], o[2]}, sums_);
    StridedArray probs = output({o[0], o[1], o[2], in_.kv_len}, sums_);
    const bool wants_probs = draw_.chance(0.5);
    attention(q_array.view(), k_array.view(), v_array.view(), options_,
              {out.view(), lse.view(), wants_probs ? probs.view() : View{}});
    check("out", out, expected.out);
    check("lse", lse, expected.lse);
    if (wants_probs) check("probs", probs, expected.probs);

    StridedArray dq = output(q, sums_), dk = output(k, sums_), dv = output(v, sums_);
    Tensor dmask(in_.mask_shape, sums_), dsinks({in_.n_head}, sums_);
    const bool wants_dmask = in_.has_mask && !in_.boolean;
    attention_backward(q_array.view(), k_array.view(), v_array.view(), out.view(), lse.view(), dout.view(), options_,
                       {dq.view(), dk.view(), dv.view(), wants_dmask ? dmask.view() : View{},
                        in_.sinks.empty() ? View{} : dsinks.view()});
    check("dq", dq, expected.dq);
    check("dk", dk, expected.dk);
    check("dv", dv, expected.dv);
    if (wants_dmask) check("dmask", dmask, expected.dmask);
    if (!in_.sinks.empty()) check("dsinks", dsinks, expected.dsinks);
  }

 private:
  StridedArray input(const Dims& shape, const std::vector<double>& from) {
    StridedArray array(shape, dtype_, draw_, std::numeric_limits<double>::quiet_NaN());
    fill(array.view(), from);
    return array;
  }
  StridedArray output(const Dims& shape, DType dtype) { return {shape, dtype, draw_, kSentinel}; }

  void check(const char* name, const StridedArray& found, const Bounded& expected) {
    EXPECT_TRUE(found.gaps_untouched()) << name;
    check(name, ConstView(found.view()), expected);
  }

  void check(const char* name, const ConstView& view, const Bounded& expected) {
    const std::vector<double> found = values(view);
    ASSERT_EQ(found.size(), expected.values.size()) << name;
    for (std::size_t n = 0; n < found.size(); ++n) {
      const double want = expected.values[n], got = found[n];
      if (std::isnan(want) || std::isinf(want)) {
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << name << "[" << n << "] " << want << " " << got;
      } else {
        const double error = std::abs(got - want), bound = expected.bounds[n];
        ASSERT_LE(error, tolerance(dtype_) * bound + 1e-36) << name << "[" << n << "] " << want << " " << got;
      }
    }
  }

  const NaiveInput& in_;
  DType dtype_, sums_;
  Draw& draw_;
  AttentionOptions options_;
  Tensor mask_, slopes_, sinks_;
};

TEST(RandomCases, AllOptionsAgreeWithTheEquations) {
  for (int n = 0; n < kCases && !HasFailure(); ++n) {
    Draw draw(2024, static_cast<std::uint64_t>(n));
    const RandomCase c = RandomCase::draw(draw);
    set_num_threads(n % 8 == 0 ? 3 : 1);
    SCOPED_TRACE("case " + std::to_string(n) + ": " + c.words);
    const NaiveOutput expected = naive_attention(c.input);
    {
      SCOPED_TRACE("reference f64");
      Comparison(c, AttentionPath::reference, DType::f64, draw).compare(expected);
    }
    for (AttentionPath path : paths()) {
      SCOPED_TRACE(path == AttentionPath::tiled ? "tiled" : "reference");
      Comparison(c, path, c.dtype, draw).compare(expected);
    }
  }
  set_num_threads(1);
}

}  // namespace
}  // namespace qkv::test
