// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "qkv/threads.h"
#include "qkv/train.h"
#include "train/small_run.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

template <class T>
void draw(std::uint64_t seed, std::vector<Tensor>& tensors) {
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    const Random random(seed, p);
    for (std::int64_t i = 0; i < tensors[p].size(); ++i)
      tensors[p].data<T>()[i] = static_cast<T>(random.normal(static_cast<std::uint64_t>(i)));
  }
}

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

// x + scale * y
Matrix sum(const Matrix& x, double scale, const Matrix& y) {
  Matrix s = x;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x[0].size(); ++j) s[i][j] += scale * y[i][j];
  return s;
}

Matrix times(double scale, const Matrix& x) { return sum(x, scale - 1, x); }

// The iteration of qkv/optimizer.h, as documented there.
Matrix orthogonalised(Matrix x) {
  const bool transpose = x.size() > x[0].size();
  if (transpose) x = transposed(x);
  double squares = 0;
  for (const auto& row : x)
    for (const double value : row) squares += value * value;
  x = times(1 / std::sqrt(squares), x);
  for (int i = 0; i < 5; ++i) {
    const Matrix a = product(x, transposed(x));
    x = sum(times(3.4445, x), 1, product(sum(times(-4.7750, a), 2.0315, product(a, a)), x));
  }
  return transpose ? transposed(x) : x;
}

template <class T>
Matrix matrix_of(const Tensor& tensor) {
  Matrix m(static_cast<std::size_t>(tensor.shape()[0]),
           std::vector<double>(static_cast<std::size_t>(tensor.shape()[1])));
  for (std::size_t i = 0; i < m.size(); ++i)
    for (std::size_t j = 0; j < m[0].size(); ++j) m[i][j] = static_cast<double>(tensor.data<T>()[i * m[0].size() + j]);
  return m;
}

// Two steps on square, wide and tall matrices.
template <class T>
void expect_the_formula(double tolerance) {
  const DType dtype = dtype_of<T>;
  const std::vector<ParameterInfo> infos{{"layers.0.wq", Dims{24, 24}, ParameterRole::wq, 0},
                                         {"layers.0.w_up", Dims{24, 70}, ParameterRole::w_up, 0},
                                         {"layers.0.w_down", Dims{70, 24}, ParameterRole::w_down, 0}};
  std::vector<Tensor> parameters, first, second;
  for (const ParameterInfo& info : infos)
    for (std::vector<Tensor>* tensors : {&parameters, &first, &second}) tensors->emplace_back(info.shape, dtype);
  draw<T>(1, parameters);
  draw<T>(2, first);
  draw<T>(3, second);
  const std::vector<Tensor> start = parameters;
  const auto optimizer = make_optimizer("muon", infos, dtype);
  OptimizerOptions options;
  options.weight_decay = 0.5;
  options.muon_momentum = 0.9;
  optimizer->update(parameters, first, options, {1, 0.01, 1.0});
  optimizer->update(parameters, second, options, {2, 0.02, 0.5});
  for (std::size_t p = 0; p < infos.size(); ++p) {
    SCOPED_TRACE(infos[p].name);
    const auto side = static_cast<double>(std::max(infos[p].shape[0], infos[p].shape[1]));
    const Matrix g1 = matrix_of<T>(first[p]), g2 = times(0.5, matrix_of<T>(second[p]));
    Matrix w = matrix_of<T>(start[p]);
    const auto step = [&](double rate, const Matrix& u) {
      const double keep = infos[p].decays() ? 1 - rate * 0.5 : 1;
      w = sum(times(keep, w), -rate * 0.2 * std::sqrt(side), orthogonalised(u));
    };
    step(0.01, sum(g1, 0.9, g1));
    const Matrix m = sum(g2, 0.9, g1);
    step(0.02, sum(g2, 0.9, m));
    const Matrix found = matrix_of<T>(parameters[p]);
    for (std::size_t i = 0; i < w.size(); ++i)
      for (std::size_t j = 0; j < w[0].size(); ++j) ASSERT_NEAR(found[i][j], w[i][j], tolerance) << i << ' ' << j;
    EXPECT_EQ(optimizer->state()[p].name, "muon.m." + infos[p].name);
    EXPECT_NEAR(matrix_of<T>(optimizer->state()[p].tensor)[3][5], m[3][5], tolerance);
  }
}

TEST(Muon, MatchesItsFormulaInF64) { expect_the_formula<double>(1e-13); }
TEST(Muon, MatchesItsFormulaInF32) { expect_the_formula<float>(2e-5); }

// The change of a matrix has singular values of about 1 times its factor: its rows are nearly orthogonal.
TEST(Muon, MakesChangesOfNearlyEqualSingularValues) {
  const std::vector<ParameterInfo> infos{{"w", Dims{8, 64}, ParameterRole::wq, 0}};
  std::vector<Tensor> parameters, gradients;
  parameters.emplace_back(infos[0].shape, DType::f64);
  gradients.emplace_back(infos[0].shape, DType::f64);
  draw<double>(5, gradients);
  OptimizerOptions options;
  options.weight_decay = 0;
  make_optimizer("muon", infos, DType::f64)->update(parameters, gradients, options, {1, 1 / (0.2 * 8), 1.0});
  const Matrix change = matrix_of<double>(parameters[0]), gram = product(change, transposed(change));
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t j = 0; j < 8; ++j) EXPECT_NEAR(gram[i][j], i == j ? 1 : 0, i == j ? 0.5 : 0.2) << i << ' ' << j;
}

// Embeddings, positions, head, gains and biases: the same bits as AdamW.
TEST(Muon, TrainsTheRestLikeAdamW) {
  ModelConfig shape = small_model();
  shape.norm_gain = shape.qkv_bias = shape.output_bias = true;
  Model a(shape, 1), b(shape, 1);
  const Model gradients(shape, 2);
  const auto muon = make_optimizer("muon", a), adamw = make_optimizer("adamw", b);
  for (std::int64_t step = 1; step <= 2; ++step) {
    muon->update(*a.change_parameters(), gradients.parameters(), {}, {step, 0.01, 1.0});
    adamw->update(*b.change_parameters(), gradients.parameters(), {}, {step, 0.01, 1.0});
  }
  std::size_t same = 0, other = 0;
  for (std::size_t p = 0; p < a.infos().size(); ++p) {
    const bool matrix = a.infos()[p].name.starts_with("layers.") && a.infos()[p].shape.rank() == 2;
    const std::vector<Tensor> x{a.parameters()[p]}, y{b.parameters()[p]};
    EXPECT_EQ(values(x) == values(y), !matrix) << a.infos()[p].name;
    ++(matrix ? other : same);
  }
  EXPECT_EQ(other, 12u);
  EXPECT_EQ(muon->state().size(), other + 2 * same);
}

TEST(Muon, AMatrixWithoutGradientOnlyDecays) {
  Model model(small_model(), 1);
  const std::vector<float> before = values(model.parameters());
  OptimizerOptions options;
  options.weight_decay = 0.5;
  make_optimizer("muon", model)
      ->update(*model.change_parameters(), model.zeros_like_parameters(), options, {1, 0.1, 1.0});
  const std::vector<float> after = values(model.parameters());
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_FLOAT_EQ(after[i], 0.95f * before[i]);
}

TEST(Muon, GivesTheSameBitsAtAnyThreadCount) {
  ModelConfig shape = small_model();
  shape.n_layer = 1;
  shape.d_model = 96;
  shape.d_ff = 1100;
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    Model model(shape, 3);
    const Model other(shape, 4);
    const auto optimizer = make_optimizer("muon", model);
    for (std::int64_t step = 1; step <= 2; ++step)
      optimizer->update(*model.change_parameters(), other.parameters(), {}, {step, 1e-2, 0.7});
    results.push_back(values(model.parameters()));
  }
  set_num_threads(0);
  for (std::size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]);
}

TEST(Muon, Learns) {
  TrainConfig config = small_training();
  config.optimizer = "muon";
  config.steps = 120;
  config.learning_rate = 1e-2;
  Trainer trainer = small_trainer(config);
  StepReport last;
  while (trainer.steps_done() < config.steps) last = trainer.step();
  EXPECT_LT(last.loss, 1.5);
}

TEST(Optimizer, IsCreatedByName) {
  EXPECT_THAT(optimizer_names(), testing::ElementsAre("adamw", "muon"));
  const Model model(small_model());
  EXPECT_THAT([&] { make_optimizer("sgd", model); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected one of adamw, muon; found 'sgd'")));
  TrainConfig config;
  config.optimizer = "";
  EXPECT_THROW(validate(config), std::invalid_argument);
  config.optimizer = "adamw";
  config.muon_momentum = 0.9;
  EXPECT_THAT([&] { validate(config); }, ThrowsMessage<std::invalid_argument>(HasSubstr("muon_momentum")));
  config.optimizer = "muon";
  EXPECT_NO_THROW(validate(config));
}

TEST(Optimizer, CannotChangeDuringARun) {
  Trainer trainer = small_trainer();
  TrainConfig config = trainer.config();
  config.optimizer = "muon";
  EXPECT_THAT([&] { trainer.set_config(config); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected adamw, which the run began with; found muon")));
}

// Every optimizer allocates what was planned.
TEST(Optimizer, AllocatesWhatWasPlanned) {
  const Model model(small_model());
  for (const std::string& name : optimizer_names()) {
    const OptimizerPlan plan = plan_optimizer(name, model.infos());
    const auto optimizer = make_optimizer(name, model);
    std::int64_t elements = plan.work;
    ASSERT_EQ(optimizer->state().size(), plan.state.size());
    for (std::size_t i = 0; i < plan.state.size(); ++i) {
      EXPECT_EQ(optimizer->state()[i].name, plan.state[i].name);
      EXPECT_EQ(optimizer->state()[i].tensor.shape(), plan.state[i].shape);
      elements += optimizer->state()[i].tensor.size();
    }
    EXPECT_EQ(plan.elements(), elements);
  }
  // A matrix [16, 40]: U, X, and two matrices [16, 16].
  EXPECT_EQ(plan_optimizer("muon", model.infos()).work, 2 * 16 * 40 + 2 * 16 * 16);
  EXPECT_EQ(plan_optimizer("adamw", model.infos()).elements(), 2 * parameter_count(model.config()));
}

}  // namespace
}  // namespace qkv
