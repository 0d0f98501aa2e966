// SPDX-License-Identifier: Apache-2.0
// The same bits at any thread count, alone or in a batch, in any layout, and on every run.
#include <gtest/gtest.h>

#include <string>

#include "attention/random_case.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

// A random case as dense arrays.
struct Call {
  Tensor q, k, v, dout, mask, slopes, sinks;
  AttentionOptions options;

  explicit Call(const RandomCase& c) : options(c.input.options) {
    const NaiveInput& in = c.input;
    q = make({in.batch, in.n_head, in.q_len, in.d_k}, in.q, c.dtype);
    k = make({in.batch, in.n_kv_head, in.kv_len, in.d_k}, in.k, c.dtype);
    v = make({in.batch, in.n_kv_head, in.kv_len, in.d_v}, in.v, c.dtype);
    dout = make({in.batch, in.n_head, in.q_len, in.d_v}, in.dout, c.dtype);
    if (in.has_mask) {
      mask = make(in.mask_shape, in.mask, in.boolean ? DType::boolean : c.mask_dtype);
      options.mask = mask;
    }
    if (!in.slopes.empty()) options.alibi_slopes = slopes = make({in.n_head}, in.slopes);
    if (!in.sinks.empty()) options.sinks = sinks = make({in.n_head}, in.sinks);
    options.path = AttentionPath::tiled;
  }
};

struct Everything {
  Forward f;
  Backward b;
};

Everything run(const Call& c) {
  Everything e{forward(c.q, c.k, c.v, c.options), {}};
  e.b = backward(c.q, c.k, c.v, e.f, c.dout, c.options);
  return e;
}

void expect_same(const Everything& a, const Everything& b) {
  EXPECT_TRUE(same_bits(a.f.out, b.f.out));
  EXPECT_TRUE(same_bits(a.f.lse, b.f.lse));
  EXPECT_TRUE(same_bits(a.f.probs, b.f.probs));
  EXPECT_TRUE(same_bits(a.b.dq, b.b.dq));
  EXPECT_TRUE(same_bits(a.b.dk, b.b.dk));
  EXPECT_TRUE(same_bits(a.b.dv, b.b.dv));
  EXPECT_TRUE(same_bits(a.b.dmask, b.b.dmask));
  EXPECT_TRUE(same_bits(a.b.dsinks, b.b.dsinks));
}

TEST(Determinism, AnyNumberOfThreads) {
  for (int n = 0; n < 200 && !::testing::Test::HasFailure(); ++n) {
    Draw draw(31, static_cast<std::uint64_t>(n));
    const RandomCase drawn = RandomCase::draw(draw);
    SCOPED_TRACE(drawn.words);
    const Call call(drawn);
    set_num_threads(1);
    const Everything one = run(call);
    for (int threads : {2, 3, 4, 8, 1}) {
      SCOPED_TRACE(std::to_string(threads) + " threads");
      set_num_threads(threads);
      expect_same(one, run(call));
    }
  }
  set_num_threads(1);
}

// Sequence b of [batch, ...] as a batch of one.
ConstView sequence(ConstView view, std::int64_t b) {
  view.data =
      static_cast<const char*>(view.data) + b * view.strides[0] * static_cast<std::int64_t>(dtype_size(view.dtype));
  view.shape[0] = 1;
  return view;
}

std::vector<std::int64_t> of_sequence(const std::vector<std::int64_t>& all, std::int64_t b) {
  if (all.size() <= 1) return all;
  return {all[static_cast<std::size_t>(b)]};
}

TEST(Determinism, SameAloneAndInABatch) {
  for (int n = 0; n < 80 && !::testing::Test::HasFailure(); ++n) {
    Draw draw(32, static_cast<std::uint64_t>(n));
    const RandomCase drawn = RandomCase::draw(draw);
    SCOPED_TRACE(drawn.words);
    const Call call(drawn);
    const Everything all = run(call);
    for (std::int64_t b = 0; b < drawn.input.batch; ++b) {
      AttentionOptions options = call.options;
      options.start = of_sequence(options.start, b);
      options.q_lengths = of_sequence(options.q_lengths, b);
      options.kv_lengths = of_sequence(options.kv_lengths, b);
      options.dropout.first_sequence += b;
      if (options.mask && options.mask.rank() == 4 && options.mask.shape[0] > 1)
        options.mask = sequence(options.mask, b);
      const ConstView q = sequence(call.q, b), k = sequence(call.k, b), v = sequence(call.v, b);
      const Forward f = forward(q, k, v, options);
      EXPECT_TRUE(same_bits(f.out, sequence(all.f.out, b)));
      EXPECT_TRUE(same_bits(f.lse, sequence(all.f.lse, b)));
      const Backward g = backward(q, k, v, f, sequence(call.dout, b), options);
      EXPECT_TRUE(same_bits(g.dq, sequence(all.b.dq, b)));
      EXPECT_TRUE(same_bits(g.dk, sequence(all.b.dk, b)));
      EXPECT_TRUE(same_bits(g.dv, sequence(all.b.dv, b)));
    }
  }
}

TEST(Determinism, AnyLayout) {
  for (int n = 0; n < 80 && !::testing::Test::HasFailure(); ++n) {
    Draw draw(33, static_cast<std::uint64_t>(n));
    const RandomCase drawn = RandomCase::draw(draw);
    SCOPED_TRACE(drawn.words);
    Call call(drawn);
    const Everything dense = run(call);
    const auto strided = [&](const Tensor& t) {
      StridedArray array(t.shape(), t.dtype(), draw, NAN);
      fill(array.view(), values(t));
      return array;
    };
    const StridedArray q = strided(call.q), k = strided(call.k), v = strided(call.v), dout = strided(call.dout);
    Everything e{forward(q.view(), k.view(), v.view(), call.options), {}};
    e.b = backward(q.view(), k.view(), v.view(), e.f, dout.view(), call.options);
    expect_same(dense, e);
  }
}

// A mask broadcast along any axes: its gradient is summed by many tasks, over several splits of keys and tiles of
// queries.
TEST(Determinism, GradientOfAnyMask) {
  const Dims full{2, 4, 101, 530};
  const Tensor q = random({2, 4, 101, 8}, 1), k = random({2, 2, 530, 8}, 2), v = random({2, 2, 530, 8}, 3);
  const Tensor dout = random({2, 4, 101, 8}, 4);
  for (int axes = 0; axes < 16; ++axes) {
    Dims shape = full;
    for (int i = 0; i < 4; ++i)
      if (axes >> i & 1) shape[i] = 1;
    SCOPED_TRACE(to_string(shape));
    const Tensor mask = random(shape, 5);
    AttentionOptions options;
    options.mask = mask;
    options.causal = axes % 3 == 1;
    options.alignment = Alignment::bottom_right;
    if (axes % 3 == 2) options.q_lengths = {101, 40}, options.kv_lengths = {530, 250};
    options.path = AttentionPath::reference;
    const Backward expected = backward(q, k, v, forward(q, k, v, options), dout, options);
    options.path = AttentionPath::tiled;
    const Forward f = forward(q, k, v, options);
    set_num_threads(1);
    const Backward one = backward(q, k, v, f, dout, options);
    const std::vector<double> found = values(one.dmask), wanted = values(expected.dmask);
    for (std::size_t e = 0; e < wanted.size(); ++e) ASSERT_NEAR(found[e], wanted[e], 1e-5) << e;
    for (int threads : {2, 3, 8}) {
      set_num_threads(threads);
      EXPECT_TRUE(same_bits(one.dmask, backward(q, k, v, f, dout, options).dmask)) << threads << " threads";
    }
    set_num_threads(1);
    Tensor rounded(shape, DType::f16);  // sums are f32 all the same
    const Tensor q16 = make(q.shape(), values(q), DType::f16), dout16 = make(dout.shape(), values(dout), DType::f16);
    const Tensor k16 = make(k.shape(), values(k), DType::f16), v16 = make(v.shape(), values(v), DType::f16);
    const Forward f16 = forward(q16, k16, v16, options);
    Tensor single(shape);
    attention_backward(q16, k16, v16, f16.out, f16.lse, dout16, options, {{}, {}, {}, single, {}});
    attention_backward(q16, k16, v16, f16.out, f16.lse, dout16, options, {{}, {}, {}, rounded, {}});
    EXPECT_TRUE(same_bits(rounded, make(shape, values(single), DType::f16)));
  }
}

}  // namespace
}  // namespace qkv::test
