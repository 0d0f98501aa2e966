// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU compared with the reference device: forward, backward, steps and caches. With compute dtype
// bf16, results depend on rounded probabilities and gradients, so the bound is 2^-6.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/agreement.h"

namespace qkv::test {
namespace {

constexpr double kRounding = 0x1p-6;

struct Named {
  std::string name;
  AttentionCase attention;
};

// Every option of a layer, alone and combined, at sizes below and above the tile sizes.
std::vector<Named> attention_cases() {
  static const std::vector<std::int64_t> lengths{70, 0, 1, 33};
  std::vector<Named> list;
  for (const Sequences& s : {Sequences{0, 5}, Sequences{1, 1}, Sequences{2, 7}, Sequences{4, 70, lengths}}) {
    const auto add = [&](const char* name, const auto& change) {
      AttentionCase c{s, 4, 2, 12, 5, {}};
      c.options.causal = true;
      c.options.alignment = Alignment::top_left;
      change(c);
      list.push_back({name, c});
    };
    const Numbers sinks = normals(4, 8, DType::bf16), slopes{0.5, 0.25, 0.125, 0.0625};
    add("causal", [](AttentionCase&) {});
    add("one head of size 1", [](AttentionCase& c) { c.n_head = c.n_kv_head = c.d_k = c.d_v = 1; });
    add("heads of 64", [](AttentionCase& c) { c.d_k = c.d_v = 64; });
    add("window", [](AttentionCase& c) { c.options.window_left = 3; });
    add("window of only the token itself", [](AttentionCase& c) { c.options.window_left = 0; });
    add("scale", [](AttentionCase& c) { c.options.scale = 0.9; });
    add("softcap", [](AttentionCase& c) { c.options.softcap = 1.5; });
    add("alibi", [&](AttentionCase& c) { c.slopes = slopes; });
    add("sinks", [&](AttentionCase& c) { c.sinks = sinks; });
    add("dropout", [](AttentionCase& c) { c.options.dropout = {0.25, 3, 1}; });
    add("all", [&](AttentionCase& c) {
      c.sinks = sinks;
      c.slopes = slopes;
      c.options.window_left = 40;
      c.options.softcap = 2;
      c.options.scale = 0.5;
      c.options.dropout = {0.25, 3, 1};
    });
  }
  return list;
}

TEST(DevicesAttention, ForwardAndBackward) {
  for (const auto& [name, c] : attention_cases())
    for (const bool second : {false, true}) {
      const Sum sum{c.s, second ? in_two_slots(c.s.batch) : in_order(c.s.batch), second};
      const std::int64_t rows = c.s.rows();
      expect_agreement(
          [&, &c = c](const Machine& m) {
            return attention(m, c, sum, m.normals(rows * (c.q() + c.k() + c.v()), 1), m.normals(rows * c.out(), 2));
          },
          testing::Message() << name << ", batch " << c.s.batch << ", second slot " << second, kRounding, true);
    }
}

TEST(DevicesAttention, Steps) {
  const std::int64_t batch = 2, n_head = 4, n_kv_head = 2, ctx = 9, d_k = 6, d_v = 3;
  expect_agreement(
      [&](const Machine& m) {
        const Array q = m.operands(Dims{batch, n_head, ctx, d_k}, m.normals(batch * n_head * ctx * d_k, 1));
        const Array k = m.operands(Dims{batch, n_kv_head, ctx, d_k}, m.normals(batch * n_kv_head * ctx * d_k, 2));
        const Array v = m.operands(Dims{batch, n_kv_head, ctx, d_v}, m.normals(batch * n_kv_head * ctx * d_v, 3));
        const Dims square{batch, n_head, ctx, ctx};
        Array products = m.stream(square), scores = m.stream(square), capped = m.stream(square);
        Array masked = m.stream(square), probs = m.stream(square), lse = m.stream(Dims{batch, n_head, ctx});
        Array out = m.operands(Dims{batch, n_head, ctx, d_v});
        AttentionOptions options;
        options.causal = true;
        options.alignment = Alignment::top_left;
        options.softcap = 2;
        options.window_left = 4;
        const AttentionSteps steps{
            .scores = scores, .softcapped = capped, .masked = masked, .probs = probs, .products = products};
        m.device.attention_steps(q, k, v, options, steps, {.out = out, .lse = lse});
        return Results{{products.values()}, {scores.values()}, {capped.values()},   {masked.values()},
                       {probs.values()},    {lse.values()},    {out.values(), true}};
      },
      testing::Message(), kRounding);
}

// New tokens appended to a cache in chunks: the same rows as in one pass over all of them.
TEST(DevicesAttention, Caches) {
  const std::int64_t n_head = 4, n_kv_head = 2, ctx = 75, d_k = 12, d_v = 5;
  const Numbers slopes{0.5, 0.25, 0.125, 0.0625};
  for (const bool with_options : {false, true})
    expect_agreement(
        [&](const Machine& m) {
          const Numbers sinks = m.normals(n_head, 8);
          const Array sink = m.stream(Dims{n_head}, sinks), slope = m.stream(Dims{n_head}, slopes);
          AttentionOptions options;
          if (with_options) {
            options.window_left = 20;
            options.softcap = 2;
            options.scale = 0.5;
            options.sinks = sink;
            options.alibi_slopes = slope;
          }
          const Sequences all{1, ctx};
          Array q = m.operands(Dims{ctx, n_head * d_k}, m.normals(ctx * n_head * d_k, 1));
          Array k = m.operands(Dims{ctx, n_kv_head * d_k}, m.normals(ctx * n_kv_head * d_k, 2));
          Array v = m.operands(Dims{ctx, n_kv_head * d_v}, m.normals(ctx * n_kv_head * d_v, 3));
          Array out = m.operands(Dims{ctx, n_head * d_v}), whole = m.operands(Dims{ctx, n_head * d_v});
          const auto rows = [&](Array& x, std::int64_t heads, std::int64_t first, std::int64_t count) {
            View part = x.view();  // [rows, heads * d]
            part.data = static_cast<char*>(part.data) + first * part.strides[0] * std::int64_t(dtype_size(part.dtype));
            part.shape[0] = count;
            return by_head({1, count}, part, heads);
          };
          // Caches of the compute dtype and, for bf16, also of f32.
          Results results;
          for (const DType type : {m.operand, m.device.stream_type()}) {
            KvCache cache(1, n_kv_head, d_k, d_v, ctx, 0, type);
            std::int64_t first = 0;
            for (const std::int64_t count : {1, 1, 30, 1, 40, 2}) {
              m.device.attend(cache, rows(q, n_head, first, count), rows(k, n_kv_head, first, count),
                              rows(v, n_kv_head, first, count), options, rows(out, n_head, first, count));
              first += count;
            }
            EXPECT_EQ(first, ctx);
            EXPECT_EQ(cache.size(), ctx);
            results.push_back({out.values(), true});
          }
          options.causal = true;
          options.alignment = Alignment::top_left;
          m.device.attention(by_head(all, q, n_head), by_head(all, k, n_kv_head), by_head(all, v, n_kv_head), options,
                             {.out = by_head(all, whole, n_head)});
          if (m.operand != DType::f64) {
            EXPECT_EQ(results[0].values, whole.values()) << "the same bits";
          }
          results.push_back({whole.values(), true});
          return results;
        },
        testing::Message() << "options " << with_options, kRounding);
}

}  // namespace
}  // namespace qkv::test
