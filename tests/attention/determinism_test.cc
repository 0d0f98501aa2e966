// SPDX-License-Identifier: Apache-2.0
// The same bits with any number of threads, alone or in a batch, in any layout, again and again.
#include <gtest/gtest.h>

#include <string>

#include "attention/drawn_case.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

// A drawn case as dense arrays.
struct Call {
  Tensor q, k, v, dout, mask, slopes, sinks;
  AttentionOptions options;

  explicit Call(const DrawnCase& c) : options(c.input.options) {
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
    const DrawnCase drawn = DrawnCase::draw(draw);
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

TEST(Determinism, AloneAsInABatch) {
  for (int n = 0; n < 80 && !::testing::Test::HasFailure(); ++n) {
    Draw draw(32, static_cast<std::uint64_t>(n));
    const DrawnCase drawn = DrawnCase::draw(draw);
    SCOPED_TRACE(drawn.words);
    const Call call(drawn);
    const Everything all = run(call);
    for (std::int64_t b = 0; b < drawn.input.batch; ++b) {
      AttentionOptions options = call.options;
      options.start = of_sequence(options.start, b);
      options.q_lengths = of_sequence(options.q_lengths, b);
      options.kv_lengths = of_sequence(options.kv_lengths, b);
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
    const DrawnCase drawn = DrawnCase::draw(draw);
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

}  // namespace
}  // namespace qkv::test
