// SPDX-License-Identifier: Apache-2.0
// Every operation on the CPU compared with the reference device, for the same inputs, with compute dtypes f32 and bf16.
// Results in f32 differ by at most 1e-5, rounded ones by 2^-8, relative to the largest number of the result (or to 1,
// if that is larger). Attention is in devices_attention_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/agreement.h"

namespace qkv::test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWidths[] = {1, 7, 64, 65, 131};
constexpr Activation kActivations[] = {Activation::relu, Activation::relu2, Activation::gelu, Activation::silu,
                                       Activation::gelu_erf};

// Batches of 0 and more, odd context lengths, padding.
std::vector<Sum> sums() {
  static const std::vector<std::int64_t> lengths{5, 0, 2};
  std::vector<Sum> list;
  for (const Sequences& s :
       {Sequences{0, 4}, Sequences{1, 1}, Sequences{3, 5, lengths}, Sequences{2, 33}, Sequences{3, 0}})
    for (const bool second : {false, true}) {
      list.push_back({s, in_order(s.batch), second});
      list.push_back({s, in_two_slots(s.batch), second});
    }
  return list;
}

TEST(Devices, AreFoundByNameAndAnUnknownOneListsThem) {
  std::vector<std::string> names;
  for (const DeviceInfo& info : devices()) {
    names.emplace_back(info.name);
    EXPECT_FALSE(info.description.empty());
    EXPECT_EQ(find_device(info.name)->name(), info.name);
    EXPECT_EQ(find_device(info.name), find_device(info.name));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"cpu", "reference"}));
  for (const char* name : {"cuda", "", "CPU", "cp"}) try {
      find_device(name);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(),
                  AllOf(HasSubstr("[device]"), HasSubstr("cpu, reference"), HasSubstr("'" + std::string(name) + "'")));
    }
}

TEST(Devices, ReportTheirDTypes) {
  const auto cpu = find_device("cpu"), reference = find_device("reference");
  EXPECT_EQ(cpu->stream_type(), DType::f32);
  EXPECT_EQ(reference->stream_type(), DType::f64);
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    EXPECT_EQ(cpu->supports_compute_dtype(type), type == DType::f32 || type == DType::bf16) << dtype_name(type);
    EXPECT_EQ(reference->supports_compute_dtype(type), type == DType::f64) << dtype_name(type);
  }
  EXPECT_TRUE(cpu->fast_compute_dtype(DType::f32));
  EXPECT_TRUE(reference->fast_compute_dtype(DType::f64));
  EXPECT_FALSE(reference->fast_compute_dtype(DType::bf16));
}

TEST(Devices, RunPassesAndTasks) {
  for (const DeviceInfo& info : devices()) {
    const auto device = find_device(info.name);
    const auto matrix = device->matrix(device->stream_type(), 3, 5);
    EXPECT_EQ(matrix->in(), 3);
    EXPECT_EQ(matrix->out(), 5);
    const std::vector<const Matrix*> matrices{matrix.get()};
    int runs = 0;
    device->run(2, matrices, [&] { ++runs; });
    device->run(0, {}, [&] { ++runs; });
    EXPECT_EQ(runs, 2);
    std::vector<int> seen(50);
    device->for_each(50, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(seen, std::vector<int>(50, 1));
    device->for_each(0, [&](std::int64_t) { ADD_FAILURE(); });
    Tensor zeros = device->allocate(Dims{3, 5}, device->stream_type());
    for (std::int64_t i = 0; i < 15; ++i) EXPECT_EQ(load(zeros, i), 0);
    EXPECT_THROW(device->run(1, {}, [] { throw std::runtime_error("from the pass"); }), std::runtime_error);
  }
}

TEST(Devices, Products) {
  for (const std::int64_t rows : {0, 1, 3, 16, 65})
    for (const std::int64_t in : {1, 7, 64, 131})
      for (const std::int64_t out : {1, 5, 64, 70})
        for (const bool transposed : {false, true})
          expect_agreement(
              [&](const Machine& m) {
                Results all;
                for (const bool stream_result : {false, true}) {
                  const ProductSizes p{rows, in, out, std::max<std::int64_t>(1, out - 3), transposed, stream_result};
                  const Numbers w = m.normals(p.in * p.columns, 1), bias = m.normals(out, 2);
                  append(all, product(m, p, w, {}, m.normals(rows * in, 3)));
                  append(all, product(m, p, w, bias, m.normals(rows * in, 3)));
                  append(all, product_backward(m, p, w, m.normals(rows * out, 4)));
                }
                return all;
              },
              testing::Message() << rows << " x " << in << " x " << out);
}

TEST(Devices, ProductsWithBlocks) {
  const std::int64_t in = 96, rows = 5;
  const auto cpu = find_device("cpu");
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1}) {
    const std::int64_t bytes = row_bytes(type, in);
    std::vector<std::byte> blocks(static_cast<std::size_t>(30 * bytes));
    Numbers w(static_cast<std::size_t>(in * 30));  // [in, 30], the dequantised values
    for (std::int64_t j = 0; j < 30; ++j) {
      const Numbers column = normals(in, 40 + static_cast<std::uint64_t>(j), DType::f32);
      std::vector<float> narrow(column.begin(), column.end()), back(narrow.size());
      quantise_row(type, narrow.data(), in, blocks.data() + j * bytes);
      dequantise_row(type, blocks.data() + j * bytes, in, back.data());
      for (std::int64_t i = 0; i < in; ++i)
        w[static_cast<std::size_t>(i * 30 + j)] = static_cast<double>(back[static_cast<std::size_t>(i)]);
    }
    const auto part = [&](std::int64_t begin, std::int64_t columns) {
      return BlockColumns{type, columns, [=, &blocks](std::int64_t first, std::int64_t count, std::byte* to) {
                            std::copy_n(blocks.data() + (begin + first) * bytes, count * bytes, to);
                          }};
    };
    const std::vector<BlockColumns> parts{part(0, 13), part(13, 17)};
    const auto matrix = cpu->matrix(DType::f32, in, 30);
    cpu->prepare_blocks(*matrix, parts);
    EXPECT_LT(matrix->bytes(), static_cast<std::size_t>(in * 30) * sizeof(float));
    const Numbers x = normals(rows * in, 3, DType::f32);
    Array y(*cpu, DType::f32, Dims{rows, 30});
    cpu->product(Array(*cpu, DType::f32, Dims{rows, in}, x), *matrix, {}, y);
    const auto reference = find_device("reference");
    const ProductSizes p{rows, in, 30, 30};
    // x is rounded to 16 bits (linalg/block_matrix.h).
    expect_near(product({*reference, DType::f64}, p, w, {}, x)[0].values, y.values(), 5e-5, "product");
    // The same matrix as a token table.
    Array found(*cpu, DType::f32, Dims{3, in});
    const std::vector<std::int32_t> tokens{29, 0, 13};
    cpu->embed({1, 3}, tokens, 0, {{}, matrix.get()}, 2, {}, found);
    Numbers expected;
    for (const std::int32_t token : tokens)
      for (std::int64_t i = 0; i < in; ++i) expected.push_back(2 * w[static_cast<std::size_t>(i * 30 + token)]);
    expect_near(expected, found.values(), 1e-6, "tokens");
    const auto wide = reference->matrix(DType::f64, in, 30);
    EXPECT_THROW(reference->prepare_blocks(*wide, parts), std::invalid_argument);
  }
}

TEST(Devices, WeightGradients) {
  for (const Sum& sum : sums())
    for (const std::int64_t in : {1, 65, 200})
      for (const std::int64_t out : {3, 64, 130})
        expect_agreement(
            [&](const Machine& m) {
              return weight_gradients(m, sum, in, out, 3, m.normals(sum.s.rows() * in, 1),
                                      m.normals(sum.s.rows() * out, 2));
            },
            testing::Message() << in << " x " << out << " batch " << sum.s.batch);
}

TEST(Devices, Norms) {
  for (const Norm kind : {Norm::rmsnorm, Norm::layernorm})
    for (const std::int64_t d : kWidths)
      for (const bool affine : {false, true})
        for (const std::int64_t rows : {0, 1, 6, 300})
          expect_agreement(
              [&](const Machine& m) {
                NormCase n{kind, 1e-2, rows, d};
                if (affine) n.gain = m.normals(d, 2), n.bias = m.normals(d, 3);
                Results all = norm(m, n, m.normals(rows * d, 1));
                append(all, add_norm(m, n, m.normals(rows * d, 1), m.normals(rows * d, 4)));
                return all;
              },
              testing::Message() << d << " wide, " << rows << " rows");
}

TEST(Devices, NormGradients) {
  for (const Sum& sum : sums())
    for (const Norm kind : {Norm::rmsnorm, Norm::layernorm})
      for (const std::int64_t d : kWidths)
        for (const bool affine : {false, true})
          expect_agreement(
              [&](const Machine& m) {
                const std::int64_t rows = sum.s.rows();
                NormCase n{kind, 1e-2, rows, d};
                if (affine) n.gain = m.normals(d, 2), n.bias = m.normals(d, 3);
                return norm_backward({m.device, m.device.stream_type()}, sum, n, m.normals(rows * d, 1),
                                     m.normals(rows * d, 4));
              },
              testing::Message() << d << " wide, batch " << sum.s.batch);
}

TEST(Devices, GroupNorms) {
  for (const Sum& sum : sums())
    for (const GroupCase& sizes : {GroupCase{1, 1, 0}, GroupCase{3, 7, 5}, GroupCase{1, 130, 3}, GroupCase{2, 65, 0}})
      for (const bool gain : {false, true})
        expect_agreement(
            [&](const Machine& m) {
              GroupCase g = sizes;
              if (gain) g.gain = m.normals(g.width, 2);
              const std::int64_t rows = sum.s.rows(), size = rows * g.groups * g.width;
              Results all = group_norm(m, rows, g, m.normals(size, 1));
              append(all, group_norm_backward(m, sum, g, m.normals(size, 1), m.normals(size, 4)));
              return all;
            },
            testing::Message() << sizes.groups << " groups of " << sizes.width);
}

TEST(Devices, Rotary) {
  for (const Sequences& s : {Sequences{0, 3}, Sequences{1, 1}, Sequences{2, 5}, Sequences{3, 70}})
    for (const RotaryCase& c : {RotaryCase{{1, 2, 2}, 0}, RotaryCase{{3, 6, 6}, 4, 1, 2},
                                RotaryCase{{3, 10, 4}, 1, 1.3, 7}, RotaryCase{{2, 64, 32}, 100}})
      for (const bool back : {false, true})
        expect_agreement([&](const Machine& m) {
          return rotary(m, s, c, back, m.normals(s.rows() * c.heads.heads * c.heads.head_dim, 1));
        });
}

TEST(Devices, Activations) {
  for (const Activation kind : kActivations)
    for (const bool gated : {false, true})
      for (const std::int64_t rows : {0, 1, 5, 200})
        for (const std::int64_t d_ff : kWidths)
          expect_agreement(
              [&](const Machine& m) {
                const ActivationCase c{kind, gated, rows, d_ff};
                Numbers up = m.normals(rows * c.width(), 1);
                for (std::size_t i = 0; i < up.size(); ++i) up[i] *= i % 5 == 0 ? 8 : 1;  // also far from 0
                Results all = activation(m, c, up);
                append(all, activation_backward(m, c, up, m.normals(rows * d_ff, 2)));
                return all;
              },
              testing::Message() << static_cast<int>(kind) << (gated ? " gated " : " ") << rows << " x " << d_ff);
}

TEST(Devices, Embeddings) {
  for (const Sum& sum : sums())
    for (const std::int64_t d : kWidths)
      for (const bool positions : {false, true})
        expect_agreement(
            [&](const Machine& m) {
              EmbeddingCase c{sum.s, {}, 3, 11, 40, d, 1.5, m.normals(11 * d, 1), {}};
              if (positions) c.positions = m.normals(40 * d, 2);
              for (std::int64_t i = 0; i < sum.s.rows(); ++i) {
                const bool padding = i % sum.s.ctx >= sum.s.length(i / sum.s.ctx);
                c.tokens.push_back(padding ? -9 : static_cast<std::int32_t>(i * 7 % 11));
              }
              Results all = embed(m, c);
              append(all, embed_backward(m, sum, c, m.normals(sum.s.rows() * d, 3)));
              return all;
            },
            testing::Message() << d << " wide, batch " << sum.s.batch);
}

TEST(Devices, CrossEntropy) {
  for (const std::int64_t vocab : {1, 2, 63, 64, 131})
    for (const std::int64_t rows : {0, 1, 40})
      expect_agreement(
          [&](const Machine& m) {
            const std::int64_t padded = (vocab + 63) / 64 * 64;
            std::vector<std::int32_t> targets;
            for (std::int64_t i = 0; i < rows; ++i)
              targets.push_back(i % 4 == 3 ? -1 : static_cast<std::int32_t>(i * 5 % vocab));
            Numbers logits = m.normals(rows * padded, 1);
            for (double& x : logits) x *= 4;
            return cross_entropy(m, vocab, padded, logits, targets, 0.25);
          },
          testing::Message() << vocab << " tokens, " << rows << " rows");
}

TEST(Devices, Arrays) {
  for (const std::int64_t n : {0, 1, 63, 64, 65, 40000})
    expect_agreement(
        [&](const Machine& m) {
          const Dims shape{n};
          const Numbers x = m.normals(n, 1), y = m.normals(n, 2);
          Array sum = m.stream(shape, y), scaled = m.stream(shape, x), scaled_operands = m.operands(shape, x);
          Array one = m.stream(shape), zeros = m.operands(shape, x), rounded = m.operands(shape),
                wide = m.stream(shape);
          m.device.add(m.stream(shape, x), sum, sum);
          m.device.scale(0.375, scaled);
          m.device.scale(0.375, scaled_operands);
          m.device.add_one(m.stream(shape, x), one);
          m.device.fill_zero(zeros);
          m.device.convert(m.stream(shape, x), rounded);
          m.device.convert(rounded, wide);
          Array copied = m.operands(shape);
          m.device.convert(rounded, copied);
          Results all{{sum.values()},        {scaled.values()},      {scaled_operands.values(), true},
                      {one.values()},        {zeros.values(), true}, {rounded.values(), true},
                      {wide.values(), true}, {copied.values(), true}};
          append(all, softcap(m, 1.5, x, y));
          return all;
        },
        testing::Message() << n);
}

TEST(Devices, Dropout) {
  for (const std::int64_t n : {0, 1, 65, 5000})
    expect_agreement(
        [&](const Machine& m) {
          const Numbers x = m.normals(n, 1);
          const Dropout dropout(0.3, 7);
          Array y = m.operands(Dims{n}), in_place = m.stream(Dims{n}, x);
          m.device.dropout(dropout, 1000, m.stream(Dims{n}, x), y);
          m.device.dropout(dropout, 1000, in_place, in_place);
          const Numbers kept = y.values();
          const auto dropped = static_cast<double>(std::count(kept.begin(), kept.end(), 0.0));
          EXPECT_NEAR(dropped, 0.3 * static_cast<double>(n), 2 * std::sqrt(static_cast<double>(n)));
          return Results{{kept, true}, {in_place.values()}};
        },
        testing::Message() << n);
}

}  // namespace
}  // namespace qkv::test
