// SPDX-License-Identifier: Apache-2.0
// The walk through attention that introductions use, with their shapes and numbers.
#include "qkv/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::map<std::string, ExplainedStep> by_name(const std::vector<ExplainedStep>& steps) {
  std::map<std::string, ExplainedStep> map;
  for (const ExplainedStep& step : steps) map.emplace(step.name, step);
  return map;
}

TEST(ExplainLayer, FourSequencesOfSixteenTokens) {
  const auto s = by_name(explain_layer({.d_model = 512, .n_head = 4}, 4, 16));
  EXPECT_EQ(s.at("input").shape, (Dims{4, 16, 512}));
  for (const char* name : {"queries", "keys", "values"}) {
    EXPECT_EQ(s.at(name).operands, (std::vector<Dims>{{4, 16, 512}, {512, 512}})) << name;
    EXPECT_EQ(s.at(name).shape, (Dims{4, 16, 512})) << name;
    EXPECT_EQ(s.at(name).work.flops, 2.0 * 4 * 16 * 512 * 512) << name;
    EXPECT_EQ(s.at(name).work.bytes, 4.0 * (4 * 16 * 512 + 512 * 512 + 4 * 16 * 512)) << name;
    EXPECT_EQ(s.at(name).work.scores, 0) << name;
  }
  EXPECT_EQ(s.at("split q").shape, (Dims{4, 4, 16, 128}));
  EXPECT_EQ(s.at("split q").work.flops, 0);
  EXPECT_EQ(s.at("split q").work.bytes, 0);
  EXPECT_EQ(s.at("scores").operands, (std::vector<Dims>{{4, 4, 16, 128}, {4, 4, 128, 16}}));
  for (const char* name : {"scores", "scale", "mask", "softmax"}) {
    EXPECT_EQ(s.at(name).shape, (Dims{4, 4, 16, 16})) << name;
    EXPECT_EQ(s.at(name).work.scores, 4096) << name;
  }
  EXPECT_EQ(s.at("scores").work.flops, 4096 * 2 * 128);
  EXPECT_EQ(s.at("scores").work.bytes, 4 * (2 * 4 * 4 * 16 * 128 + 4096));
  EXPECT_EQ(s.at("scale").work.flops, 4096);
  EXPECT_EQ(s.at("scale").work.bytes, 2 * 4 * 4096);
  EXPECT_EQ(s.at("softmax").work.flops, 5 * 4096);
  EXPECT_EQ(s.at("weighted sum").shape, (Dims{4, 4, 16, 128}));
  EXPECT_EQ(s.at("weighted sum").work.flops, 4096 * 2 * 128);
  EXPECT_EQ(s.at("concatenate").shape, (Dims{4, 16, 512}));
  EXPECT_EQ(s.at("output").operands, (std::vector<Dims>{{4, 16, 512}, {512, 512}}));
  EXPECT_EQ(s.at("output").shape, (Dims{4, 16, 512}));
  EXPECT_EQ(s.at("residual").work.flops, 4 * 16 * 512);
}

TEST(ExplainLayer, Andrea) {
  const auto s = by_name(explain_layer({.d_model = 768, .n_head = 12}, 1, 1024));
  EXPECT_EQ(s.at("split q").shape, (Dims{1, 12, 1024, 64}));
  EXPECT_EQ(s.at("scores").work.scores, 12 * 1048576.0) << "1,048,576 per head";
  EXPECT_EQ(s.at("weighted sum").shape, (Dims{1, 12, 1024, 64}));
  EXPECT_EQ(s.at("concatenate").shape, (Dims{1, 1024, 768}));
}

TEST(ExplainLayer, SharedKeysDifferentWidthsBiasesAndOtherTypes) {
  const MultiHeadConfig layer{.d_model = 10, .n_head = 6, .n_kv_head = 2, .head_dim = 3, .v_head_dim = 5, .bias = true};
  const auto s = by_name(explain_layer(layer, 2, 7, false, DType::bf16));
  EXPECT_EQ(s.count("mask"), 0U);
  EXPECT_EQ(s.at("queries").shape, (Dims{2, 7, 18}));
  EXPECT_EQ(s.at("keys").shape, (Dims{2, 7, 6}));
  EXPECT_EQ(s.at("values").shape, (Dims{2, 7, 10}));
  EXPECT_EQ(s.at("split k").shape, (Dims{2, 2, 7, 3}));
  EXPECT_EQ(s.at("scores").work.flops, 2 * 6 * 7 * 7 * 2 * 3);
  EXPECT_EQ(s.at("scores").work.bytes, 2 * (2 * 7 * (6 + 2) * 3 + 2 * 6 * 7 * 7));
  EXPECT_EQ(s.at("output").operands, (std::vector<Dims>{{2, 7, 30}, {30, 10}}));
  EXPECT_EQ(s.at("output").work.flops, 14 * 10 * (2 * 30 + 1));
  EXPECT_EQ(s.at("output").work.bytes, 2 * (14 * 30 + 30 * 10 + 10 + 14 * 10));
  EXPECT_EQ(s.at("keys").formula, "K = X · W_K + b_K");
}

TEST(ExplainLayer, AgreesWithTheCountsOfAModel) {
  ModelConfig model = preset("andrea-120m").resolved();
  const AttentionWork w =
      attention_work(attention_sizes({.d_model = model.d_model, .n_head = model.n_head}, 1, model.ctx_len));
  const double products = w.queries.flops + w.keys.flops + w.values.flops + w.output.flops;
  EXPECT_EQ(products / 2 / 1024, 4.0 * 768 * 768);
  EXPECT_EQ(w.scores.flops + w.weighted_sum.flops, attention_forward_flops(12.0 * 1024 * 1024, 64, 64));
  double sum = 0;
  for (const ExplainedStep& s : explain_layer({.d_model = 768, .n_head = 12}, 1, 1024)) sum += s.work.flops;
  EXPECT_EQ(sum, w.total().flops);
}

TEST(ExplainLayer, RefusesInvalidArguments) {
  EXPECT_THROW(explain_layer({.d_model = 512, .n_head = 5}, 1, 16), std::invalid_argument);
  EXPECT_THROW(explain_layer({.d_model = 512, .n_head = 4}, 0, 16), std::invalid_argument);
  EXPECT_THROW(explain_layer({.d_model = 512, .n_head = 4}, 1, -1), std::invalid_argument);
  EXPECT_THROW(explain_layer({.d_model = 512, .n_head = 4}, 1, std::int64_t{1} << 40), std::invalid_argument);
}

std::vector<double> rounded(std::vector<double> weights) {
  for (double& w : weights) w = std::round(w * 1000) / 1000;
  return weights;
}

TEST(Softmax, RowsOfIntroductoryExamples) {
  EXPECT_THAT(rounded(softmax_of({100, 1, 2})), ElementsAre(1, 0, 0));
  EXPECT_THAT(rounded(softmax_of({1.0, 0.1, 0.2})), ElementsAre(0.539, 0.219, 0.242));
  EXPECT_THAT(rounded(softmax_of({0.32, 1.87, 0.94, -kInf})), ElementsAre(0.132, 0.622, 0.246, 0));
  EXPECT_THAT(softmax_of({0.3, -kInf, -kInf, -kInf}), ElementsAre(1, 0, 0, 0)) << "exactly";
  EXPECT_THAT(softmax_of({-kInf, -kInf}), ElementsAre(0, 0)) << "fully masked";
  EXPECT_THAT(softmax_of({2, 2, 2, 2}), ElementsAre(0.25, 0.25, 0.25, 0.25));
  EXPECT_THROW(softmax_of({}), std::invalid_argument);
}

TEST(WorkedExample, FollowsTheFormulas) {
  const std::int64_t ctx = 5, d = 3;
  const WorkedExample e = worked_example({.d_model = 6, .n_head = 2}, ctx, true, 7);
  for (std::int64_t h = 0; h < 2; ++h) {
    const double* q = e.q.data<double>() + h * ctx * d;
    const double* k = e.k.data<double>() + h * ctx * d;
    const double* v = e.v.data<double>() + h * ctx * d;
    for (std::int64_t i = 0; i < ctx; ++i) {
      double sum = 0, mixed = 0;
      for (std::int64_t j = 0; j < ctx; ++j) {
        const std::int64_t at = (h * ctx + i) * ctx + j;
        double dot = 0;
        for (std::int64_t c = 0; c < d; ++c) dot += q[i * d + c] * k[j * d + c];
        EXPECT_NEAR(e.scores.data<double>()[at], dot, 1e-12);
        EXPECT_NEAR(e.scaled.data<double>()[at], dot / std::sqrt(3.0), 1e-12);
        const double p = e.probs.data<double>()[at];
        if (j > i) {
          EXPECT_EQ(e.masked.data<double>()[at], -kInf);
          EXPECT_EQ(p, 0);
        } else {
          EXPECT_EQ(e.masked.data<double>()[at], e.scaled.data<double>()[at]);
        }
        sum += p;
        mixed += p * v[j * d];
      }
      EXPECT_NEAR(sum, 1, 1e-12);
      EXPECT_NEAR(e.heads.data<double>()[(h * ctx + i) * d], mixed, 1e-12);
    }
    EXPECT_EQ(e.probs.data<double>()[h * ctx * ctx], 1) << "the first token attends only to itself";
  }
  for (std::int64_t i = 0; i < e.x.size(); ++i) {
    EXPECT_EQ(e.residual.data<double>()[i], e.x.data<double>()[i] + e.output.data<double>()[i]);
  }
}

TEST(Scaling, GrowsAsTheSquareRootOfDk) {
  for (const std::int64_t d_k : {64, 256, 4096}) {  // 8, 16, 64
    const ScalingRow row = measure_scaling(d_k);
    const double root = std::sqrt(static_cast<double>(d_k));
    EXPECT_NEAR(row.plain_deviation / root, 1, 0.06) << d_k;
    EXPECT_NEAR(row.scaled_deviation, row.plain_deviation / root, 1e-9);
    EXPECT_LT(row.scaled_largest, 0.2) << d_k;
    EXPECT_GT(row.plain_largest, 0.7) << d_k;
    EXPECT_GT(row.scaled_gradient, 0.1) << d_k;
  }
  EXPECT_LT(measure_scaling(4096).plain_gradient, 0.1) << "vanishes";
  EXPECT_GT(measure_scaling(4096).plain_largest, 0.95) << "saturates";
  EXPECT_EQ(measure_scaling(64).plain_deviation, measure_scaling(64).plain_deviation);
  EXPECT_THROW(measure_scaling(0), std::invalid_argument);
}

TEST(Scaling, PictureIsSelfContained) {
  const std::string svg = scaling_picture({measure_scaling(16, 32, 16), measure_scaling(64, 32, 16)});
  EXPECT_THAT(svg, HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr(">64<"));
  EXPECT_THAT(svg, Not(HasSubstr("href")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(scaling_picture({}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace qkv
