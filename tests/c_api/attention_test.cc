// SPDX-License-Identifier: Apache-2.0
// Attention from C is bit-identical to attention from C++, and rejects invalid arguments with a message.
#include "qkv/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "qkv_c.h"

namespace {

using ::testing::HasSubstr;

qkv::Tensor numbers(const qkv::Dims& shape, std::int64_t step) {
  qkv::Tensor tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<float>(i * step % 17 - 8) / 4;
  return tensor;
}

qkv_array array_of(qkv::Tensor& tensor) {
  return qkv_contiguous(tensor.raw(), static_cast<qkv_dtype>(tensor.dtype()), tensor.shape().rank(),
                        tensor.shape().begin());
}

void expect_same_bits(const qkv::Tensor& a, const qkv::Tensor& b) {
  ASSERT_EQ(a.bytes(), b.bytes());
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
}

// 6 heads over 2, 5 queries, 7 keys, d_k 3, d_v 4, two sequences.
struct Case {
  qkv::Tensor q = numbers({2, 6, 5, 3}, 5), k = numbers({2, 2, 7, 3}, 7), v = numbers({2, 2, 7, 4}, 3);
  qkv::Tensor mask = numbers({5, 7}, 11), sinks = numbers({6}, 2), slopes = numbers({6}, 3);
  qkv::Tensor out{{2, 6, 5, 4}}, lse{{2, 6, 5}}, probs{{2, 6, 5, 7}};
  qkv_array q_c = array_of(q), k_c = array_of(k), v_c = array_of(v), out_c = array_of(out), lse_c = array_of(lse);
  qkv_array probs_c = array_of(probs), mask_c = array_of(mask), sinks_c = array_of(sinks), slopes_c = array_of(slopes);
  qkv_attention_options options;
  Case() { qkv_attention_options_init(&options); }
  qkv_status run() { return qkv_attention(&q_c, &k_c, &v_c, &options, &out_c, &lse_c, &probs_c); }
};

TEST(CAttention, DefaultsAreThoseOfCxx) {
  Case c;
  ASSERT_EQ(qkv_attention(&c.q_c, &c.k_c, &c.v_c, nullptr, &c.out_c, nullptr, nullptr), QKV_OK) << qkv_last_error();
  expect_same_bits(c.out, qkv::attention(c.q, c.k, c.v));
  ASSERT_EQ(c.run(), QKV_OK) << qkv_last_error();
  expect_same_bits(c.out, qkv::attention(c.q, c.k, c.v));
}

TEST(CAttention, EveryOptionIsPassedOn) {
  Case c;
  const std::int64_t start[] = {1, -2}, q_lengths[] = {5, 4}, kv_lengths[] = {7, 6};
  const double scale = 0.7;
  c.options.causal = 1;
  c.options.alignment = QKV_ALIGN_START;
  c.options.start = start;
  c.options.n_start = 2;
  c.options.window_left = 3;
  c.options.mask = &c.mask_c;
  c.options.q_lengths = q_lengths;
  c.options.kv_lengths = kv_lengths;
  c.options.scale = &scale;
  c.options.softcap = 5;
  c.options.alibi_slopes = &c.slopes_c;
  c.options.sinks = &c.sinks_c;
  c.options.dropout = 0.25;
  c.options.dropout_seed = 9;
  ASSERT_EQ(c.run(), QKV_OK) << qkv_last_error();

  qkv::AttentionOptions options{.causal = true, .alignment = qkv::Alignment::start, .start = {1, -2}, .window_left = 3};
  options.mask = c.mask;
  options.q_lengths = {5, 4};
  options.kv_lengths = {7, 6};
  options.scale = 0.7;
  options.softcap = 5;
  options.alibi_slopes = c.slopes;
  options.sinks = c.sinks;
  options.dropout = {.p = 0.25, .seed = 9};
  qkv::Tensor out(c.out.shape()), lse(c.lse.shape()), probs(c.probs.shape());
  qkv::attention(c.q, c.k, c.v, options, {.out = out, .lse = lse, .probs = probs});
  expect_same_bits(c.out, out);
  expect_same_bits(c.lse, lse);
  expect_same_bits(c.probs, probs);

  qkv::Tensor dout = numbers(c.out.shape(), 13), dq(c.q.shape()), dk(c.k.shape()), dv(c.v.shape());
  qkv::Tensor dmask(c.mask.shape()), dsinks(c.sinks.shape());
  qkv::Tensor dq2 = dq, dk2 = dk, dv2 = dv, dmask2 = dmask, dsinks2 = dsinks;
  qkv::attention_backward(c.q, c.k, c.v, out, lse, dout, options,
                          {.dq = dq, .dk = dk, .dv = dv, .dmask = dmask, .dsinks = dsinks});
  const qkv_array dout_c = array_of(dout), dq_c = array_of(dq2), dk_c = array_of(dk2), dv_c = array_of(dv2);
  const qkv_array dmask_c = array_of(dmask2), dsinks_c = array_of(dsinks2);
  const qkv_attention_gradients gradients{&dq_c, &dk_c, &dv_c, &dmask_c, &dsinks_c};
  ASSERT_EQ(qkv_attention_backward(&c.q_c, &c.k_c, &c.v_c, &c.out_c, &c.lse_c, &dout_c, &c.options, &gradients), QKV_OK)
      << qkv_last_error();
  expect_same_bits(dq, dq2);
  expect_same_bits(dk, dk2);
  expect_same_bits(dv, dv2);
  expect_same_bits(dmask, dmask2);
  expect_same_bits(dsinks, dsinks2);
}

TEST(CAttention, StridesAreHonoured) {
  Case c;
  ASSERT_EQ(c.run(), QKV_OK);
  const qkv::Tensor expected = c.out;
  // The same q in [batch, q_len, n_head, d_k] memory order.
  qkv::Tensor other({2, 5, 6, 3});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 6; ++h)
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t d = 0; d < 3; ++d)
          other.data()[((b * 5 + i) * 6 + h) * 3 + d] = c.q.data()[((b * 6 + h) * 5 + i) * 3 + d];
  c.q_c = {other.raw(), QKV_F32, 4, {2, 6, 5, 3}, {90, 3, 18, 1}};
  ASSERT_EQ(c.run(), QKV_OK) << qkv_last_error();
  expect_same_bits(c.out, expected);
}

TEST(CAttention, InvalidArgumentsAreRefusedWithAMessage) {
  const auto refused = [](void (*change)(Case&), const char* message) {
    Case c;
    change(c);
    EXPECT_EQ(c.run(), QKV_INVALID_ARGUMENT);
    EXPECT_THAT(qkv_last_error(), HasSubstr(message));
    for (std::int64_t i = 0; i < c.out.size(); ++i) ASSERT_EQ(c.out.data()[i], 0) << "written although it was refused";
  };
  refused([](Case& c) { c.options.causal = 1; }, "alignment");
  refused([](Case& c) { c.options.alignment = 77; }, "expected alignment to be a qkv_alignment; found 77");
  refused([](Case& c) { c.options.alignment = -1; }, "found -1");
  refused([](Case& c) { c.q_c.dtype = 99; }, "expected q with a valid qkv_dtype; found 99");
  refused([](Case& c) { c.k_c.dtype = -3; }, "expected k with a valid qkv_dtype; found -3");
  refused([](Case& c) { c.v_c.rank = 9; }, "expected v of rank 0 to 8; found 9");
  refused([](Case& c) { c.out_c.rank = -1; }, "expected out of rank 0 to 8; found -1");
  refused([](Case& c) { c.q_c.rank = 0; }, "found shape []");
  refused([](Case& c) { c.q_c.data = nullptr; }, "expected q; found a null pointer");
  refused([](Case& c) { c.q_c.shape[1] = 5; }, "n_head");
  refused([](Case& c) { c.q_c.shape[0] = -4; }, "found");
  refused([](Case& c) { c.q_c.shape[0] = std::int64_t{1} << 62; }, "found");
  refused([](Case& c) { c.options.dropout = std::nan(""); }, "dropout");
  refused(
      [](Case& c) {
        static const std::int64_t start[] = {0, 0, 0};
        c.options.alignment = QKV_ALIGN_START;
        c.options.start = start;
        c.options.n_start = 3;
      },
      "expected n_start to be 1 or the batch size; found 3");
}

TEST(CAttention, NullPointersAreRefused) {
  Case c;
  EXPECT_EQ(qkv_attention(nullptr, &c.k_c, &c.v_c, nullptr, &c.out_c, nullptr, nullptr), QKV_INVALID_ARGUMENT);
  EXPECT_STREQ(qkv_last_error(), "[qkv_attention] expected q; found a null pointer");
  EXPECT_EQ(qkv_attention_backward(&c.q_c, &c.k_c, &c.v_c, &c.out_c, &c.lse_c, &c.out_c, nullptr, nullptr),
            QKV_INVALID_ARGUMENT);
  EXPECT_STREQ(qkv_last_error(), "[qkv_attention_backward] expected gradients; found a null pointer");
  qkv_attention_options_init(nullptr);
  EXPECT_EQ(qkv_contiguous(nullptr, QKV_F32, 9, c.q.shape().begin()).rank, -1);
  EXPECT_EQ(qkv_contiguous(nullptr, QKV_F32, 2, nullptr).rank, -1);
}

TEST(CAttention, ErrorMessagesAreThreadLocal) {
  EXPECT_EQ(qkv_set_num_threads(-1), QKV_INVALID_ARGUMENT);
  const std::string mine = qkv_last_error();
  EXPECT_FALSE(mine.empty());
  std::thread([] { EXPECT_STREQ(qkv_last_error(), ""); }).join();
  EXPECT_EQ(mine, qkv_last_error());
  EXPECT_STREQ(qkv_status_name(QKV_TOO_SMALL), "too small");
  EXPECT_STREQ(qkv_status_name(1234), "unknown status");
  EXPECT_STREQ(qkv_version(), QKV_VERSION);
}

}  // namespace
