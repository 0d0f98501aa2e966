// SPDX-License-Identifier: Apache-2.0
// Invalid arguments: the messages, and that no output is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

class Errors : public ::testing::Test {
 protected:
  std::string error() {
    Tensor out(out_shape, out_type);
    fill(out, std::vector<double>(static_cast<std::size_t>(out.size()), 42));
    const std::string message = error_of([&] { attention(q, k, v, options, {out, lse, probs}); });
    for (double x : values(out)) EXPECT_EQ(x, 42);
    return message;
  }
  void expect(const char* expected, const char* found) {
    EXPECT_THAT(error(),
                AllOf(StartsWith("[attention] "), HasSubstr(expected), HasSubstr(std::string("; found ") + found)));
  }

  Tensor q{{2, 6, 3, 8}}, k{{2, 3, 5, 8}}, v{{2, 3, 5, 4}}, mask;
  Dims out_shape{2, 6, 3, 4};
  DType out_type = DType::f32;
  View lse, probs;
  AttentionOptions options;
};

TEST_F(Errors, NoneByDefault) {
  Tensor out(out_shape);
  EXPECT_NO_THROW(attention(q, k, v, options, {out, {}, {}}));
}

TEST_F(Errors, Shapes) {
  k = Tensor({2, 4, 5, 8}), v = Tensor({2, 4, 5, 4});
  expect("n_head must be a multiple of n_kv_head", "6 and 4");
  k = Tensor({2, 3, 5, 7});
  v = Tensor({2, 3, 5, 4});
  expect("q and k must have the same head dimension", "q [2, 6, 3, 8], k [2, 3, 5, 7]");
  k = Tensor({1, 3, 5, 8});
  expect("same batch", "q [2, 6");
  k = Tensor({2, 3, 6, 8});
  expect("same number of keys", "q [2, 6");
  k = Tensor({2, 2, 5, 8});
  expect("k and v must have the same number of heads", "q [2, 6");
  k = Tensor({2, 3, 40});
  expect("k must be [batch, n_kv_head, kv_len, d_k]", "shape [2, 3, 40]");
}

TEST_F(Errors, ZeroHeadsAndDimensions) {
  k = Tensor({2, 0, 5, 8}), v = Tensor({2, 0, 5, 4});
  expect("k must have at least one head", "shape [2, 0, 5, 8]");
  k = Tensor({2, 3, 5, 8}), v = Tensor({2, 3, 5, 0}), out_shape = {2, 6, 3, 0};
  expect("v must have a head dimension of at least 1", "shape [2, 3, 5, 0]");
  q = Tensor({2, 0, 3, 8});
  expect("q must have at least one head", "shape [2, 0, 3, 8]");
}

TEST_F(Errors, Types) {
  k = Tensor({2, 3, 5, 8}, DType::bf16);
  expect("q, k and v must have the same type", "f32, bf16 and f32");
  q = Tensor({2, 6, 3, 8}, DType::i64);
  expect("q must be floating", "i64");
}

TEST_F(Errors, MissingArrays) {
  ConstView none = q;
  none.data = nullptr;
  EXPECT_THAT(error_of([&] { attention(none, k, v, options); }), HasSubstr("q must be given"));
  EXPECT_THAT(error_of([&] { attention(q, k, v, options, {}); }),
              HasSubstr("out must have the shape [2, 6, 3, 4]; found []"));
}

TEST_F(Errors, Results) {
  out_shape = {2, 6, 3, 8};
  expect("out must have the shape [2, 6, 3, 4]", "[2, 6, 3, 8]");
  out_shape = {2, 6, 3, 4};
  out_type = DType::f64;
  expect("out must be f32", "f64");
  out_type = DType::f32;
  Tensor narrow({2, 6, 3}, DType::bf16), small({2, 6, 3, 4});
  lse = narrow;
  expect("lse must be f32", "bf16");
  lse = {};
  probs = small;
  expect("probs must have the shape [2, 6, 3, 5]", "[2, 6, 3, 4]");
  probs.shape = {2, 6, 3, 5};
  probs.strides = {0, 20, 5, 1};
  expect("probs must not repeat elements", "stride 0 along axis 0");
}

TEST_F(Errors, AlignmentMustBeGiven) {
  options.causal = true;
  expect("causal needs an alignment", "none");
  options.causal = false;
  options.window_right = 0;
  expect("a window needs an alignment", "none");
  options.window_right = -1;
  const Tensor slopes({6});
  options.alibi_slopes = slopes;
  expect("alibi_slopes needs an alignment", "none");
}

TEST_F(Errors, Starts) {
  options.start = {1};
  expect("start is only used with the alignment 'start'", "another alignment");
  options.alignment = Alignment::start;
  options.start = {1, 2, 3};
  expect("one per sequence (2)", "3");
  options.start = {};
  expect("one per sequence (2)", "0");
  options.start = {std::numeric_limits<std::int64_t>::max()};
  expect("start must be from -2^40 to 2^40", "9223372036854775807");
  options.start = {std::numeric_limits<std::int64_t>::min()};
  expect("start must be from -2^40 to 2^40", "-9223372036854775808");
}

TEST_F(Errors, WindowsLengthsAndFirstKey) {
  options.alignment = Alignment::top_left;
  options.window_left = -2;
  expect("window_left must be -1 (unlimited) or at least 0", "-2");
  options.window_left = -1;
  options.kv_lengths = {5, 6};
  expect("kv_lengths must be from 0 to 5", "6 for sequence 1");
  options.kv_lengths = {5};
  expect("kv_lengths must have one length per sequence (2)", "1");
  options.kv_lengths = {};
  options.q_lengths = {-1, 3};
  expect("q_lengths must be from 0 to 3", "-1 for sequence 0");
  options.q_lengths = {};
  options.first_key = -1;
  expect("first_key must be from 0", "-1");
}

TEST_F(Errors, Numbers) {
  options.scale = std::numeric_limits<double>::quiet_NaN();
  expect("scale must be finite", "");
  options.scale = 1e300;  // infinite in f32
  expect("scale must be finite", "");
  options.scale = 1;
  options.softcap = -1;
  expect("softcap must be 0 (off) or a positive finite number", "-1");
  options.softcap = 1e-60;
  expect("softcap must be 0 (off) or a positive finite number", "");
}

TEST_F(Errors, Dropout) {
  for (const double p : {-0.1, 1.0, 2.0}) {
    options.dropout.p = p;
    expect("dropout.p must be from 0 to below 1", "");
  }
  options.dropout.p = NAN;
  expect("dropout.p must be from 0 to below 1", "nan");
  options.dropout.p = 0.5;
  for (const std::int64_t first : {std::int64_t{-1}, std::int64_t{1} << 32}) {
    options.dropout.first_sequence = first;
    expect("dropout.first_sequence must be from 0", "");
  }
  options.dropout.first_sequence = (std::int64_t{1} << 32) / 6 - 2;
  Tensor out(out_shape);
  EXPECT_NO_THROW(attention(q, k, v, options, {out, {}, {}}));
}

TEST_F(Errors, Masks) {
  for (const Dims& shape : {Dims{4}, Dims{2, 5}, Dims{3, 1, 1, 1}, Dims{1, 1, 1, 1, 1}, Dims{3, 0}}) {
    mask = Tensor(shape);
    options.mask = mask;
    expect("mask must broadcast to [batch, n_head, q_len, kv_len] = [2, 6, 3, 5]", "shape ");
  }
  mask = Tensor({3, 5}, DType::i32);
  options.mask = mask;
  expect("mask must be bool (true: may attend) or floating (added)", "i32");
}

TEST_F(Errors, ValuesForEachHead) {
  const Tensor three({3}), integers({6}, DType::i64);
  options.sinks = three;
  expect("sinks must be floating, one per query head, [6]", "f32 [3]");
  options.sinks = integers;
  expect("sinks must be floating", "i64 [6]");
  options.sinks = {};
  options.alignment = Alignment::top_left;
  const Tensor infinite = make({6}, {0, 0, INFINITY, 0, 0, 0});
  options.alibi_slopes = infinite;
  expect("alibi_slopes must be finite", "inf");
}

TEST_F(Errors, FullyMaskedRowIsNamed) {
  options.require_readable_key = true;
  mask = Tensor({2, 6, 3, 5}, DType::boolean);
  for (std::int64_t e = 0; e < mask.size(); ++e) mask.data<bool>()[e] = true;
  for (std::int64_t j = 0; j < 5; ++j) mask.data<bool>()[((1 * 6 + 4) * 3 + 2) * 5 + j] = false;
  options.mask = mask;
  expect("every query must have a key that it may attend to", "none for query 2 of head 4 of sequence 1");
  options.q_lengths = {3, 2};  // rows past the length are exempt
  EXPECT_EQ(error_of([&] { attention(q, k, v, options); }), "no error");
  options.mask = {};
  options.causal = true;
  options.alignment = Alignment::start;
  options.start = {0, -1};
  expect("every query", "none for query 0 of head 0 of sequence 1");
}

TEST_F(Errors, TiledPathRefusesF64) {
  q = Tensor({1, 1, 1, 1}, DType::f64);
  options.path = AttentionPath::tiled;
  EXPECT_THAT(error_of([&] { attention(q, q, q, options); }),
              HasSubstr("the tiled path supports f32, bf16 and f16; found f64"));
  options.path = AttentionPath::automatic;
  EXPECT_EQ(error_of([&] { attention(q, q, q, options); }), "no error");
}

TEST_F(Errors, Gradients) {
  Tensor out(out_shape), rows({2, 6, 3}), dq(q.shape()), dsinks({6}), wrong({2, 6, 3, 5}), dmask({3, 5});
  AttentionGradients wanted{dq, {}, {}, {}, {}};
  const auto message = [&] { return error_of([&] { attention_backward(q, k, v, out, rows, out, options, wanted); }); };
  EXPECT_EQ(message(), "no error");
  wanted.dq = wrong;
  EXPECT_THAT(message(), HasSubstr("dq must have the shape [2, 6, 3, 8]; found [2, 6, 3, 5]"));
  wanted = {{}, {}, {}, dmask, {}};
  EXPECT_THAT(message(), HasSubstr("dmask needs a floating mask; found none"));
  const Tensor boolean({3, 5}, DType::boolean);
  options.mask = boolean;
  EXPECT_THAT(message(), HasSubstr("dmask needs a floating mask; found a bool mask"));
  const Tensor row({1, 5});
  options.mask = row;
  EXPECT_THAT(message(), HasSubstr("dmask must have the shape [1, 5]; found [3, 5]"));
  wanted = {{}, {}, {}, {}, dsinks};
  EXPECT_THAT(message(), HasSubstr("dsinks needs sinks; found none"));
  EXPECT_THAT(error_of([&] { attention_backward(q, k, v, wrong, rows, out, options, {}); }),
              HasSubstr("out must have the shape"));
  EXPECT_THAT(error_of([&] { attention_backward(q, k, v, out, out, out, options, {}); }),
              HasSubstr("lse must have the shape"));
  EXPECT_THAT(error_of([&] { attention_backward(q, k, v, out, rows, {}, options, {}); }),
              HasSubstr("dout must have the shape"));
}

TEST(EmptySizes, GiveEmptyOrZeroResults) {
  for (AttentionPath path : paths()) {
    AttentionOptions options;
    options.path = path;
    options.causal = true;
    options.alignment = Alignment::bottom_right;
    const Tensor no_batch({0, 2, 3, 4}), three = random({1, 2, 3, 4}, 1), none({1, 2, 0, 4});
    EXPECT_EQ(attention(no_batch, no_batch, no_batch, options).size(), 0);
    EXPECT_EQ(attention(none, three, three, options).size(), 0);
    const Forward f = forward(three, none, none, options);  // no keys
    for (double x : values(f.out)) EXPECT_EQ(x, 0);
    for (double x : values(f.lse)) EXPECT_EQ(x, -INFINITY);
    const Backward b = backward(three, none, none, f, three, options);
    for (double x : values(b.dq)) EXPECT_EQ(x, 0);
    const Tensor sinks = make({2}, {1, 1});
    options.sinks = sinks;
    const Forward g = forward(none, three, three, options);  // no queries: gradients of keys and sinks are 0
    const Backward d = backward(none, three, three, g, none, options);
    for (double x : values(d.dk)) EXPECT_EQ(x, 0);
    for (double x : values(d.dsinks)) EXPECT_EQ(x, 0);
  }
}

}  // namespace
}  // namespace qkv::test
