// SPDX-License-Identifier: Apache-2.0
// LoRA training: gradients, frozen weights, and resuming after a stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/tiny_models.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "train/lora_training.h"
#include "train/small_run.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> all_targets(const ModelConfig& config) {
  std::vector<std::string> targets{"wq", "wk", "wv", "wo", "w_up", "w_down"};
  if (config.gated) targets.push_back("w_gate");
  return targets;
}

LoraAdapters small_adapters() { return make_lora(small_model(), {.rank = 2, .alpha = 6}, 3); }

Trainer small_lora_trainer(const TrainConfig& config = full_training()) {
  return Trainer(Model(small_model(), 5), Tokenizer::bytes(), small_data(), config, small_adapters());
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// d(loss) / d(A) and d(B) compared with central differences in f64, for every family and matrix, at random A and B.
TEST(Lora, GradientsMatchTheLoss) {
  for (const test::NamedConfig& named : test::tiny_models()) {
    SCOPED_TRACE(named.name);
    const ModelConfig& c = named.config;
    Model model(c, 7, DType::f64);
    test::disturb<double>(model, 0.2, 9);
    LoraAdapters start = make_lora(c, {.rank = 3, .alpha = 4.5, .targets = all_targets(c)}, 1, DType::f64);
    for (std::size_t v = 0; v < start.values.size(); ++v)  // B too
      for (std::int64_t i = 0; i < start.values[v].size(); ++i)
        start.values[v].data<double>()[i] += 0.1 * std::sin(static_cast<double>(i) + static_cast<double>(v));
    LoraTraining lora(model, std::move(start));
    const test::Tokens batch = test::random_tokens(c, 3, 9, 4);
    GradientSum sum(model, adapted_parameters(lora.adapters(), model.infos().size()));
    sum.begin(3);
    model.loss_and_gradients(batch, 1.0, sum);
    const std::vector<Tensor> gradients = lora.project(sum.finish());
    for (std::size_t v = 0; v < gradients.size(); ++v)
      for (const std::int64_t i : {std::int64_t{0}, gradients[v].size() / 2, gradients[v].size() - 1}) {
        constexpr double kStep = 1e-5;
        double& value = lora.values()[v].data<double>()[i];
        const double before = value;
        const auto loss_at = [&](double x) {
          value = x;
          lora.merge(model);
          return model.loss(batch).sum;
        };
        const double slope = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
        loss_at(before);
        EXPECT_NEAR(gradients[v].data<double>()[i], slope, 1e-7 * (1 + std::abs(slope)))
            << lora.adapters().tensor_name(v) << " " << i;
      }
  }
}

// The requested gradients have the same bits as when all are computed, with many sequences in the summation tree.
TEST(Lora, RequestedGradientsMatchTheWholeModel) {
  for (const test::NamedConfig& named : test::tiny_models()) {
    Model model(named.config, 7);
    std::vector<bool> wanted(model.infos().size());
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = model.infos()[i].name.ends_with("wk") || i == 1;
    GradientSum some(model, wanted), all(model);
    const test::Tokens batch = test::random_tokens(named.config, 11, 7, 4);
    for (GradientSum* sum : {&some, &all}) {
      sum->begin(22);
      for (int i = 0; i < 2; ++i) model.loss_and_gradients(batch, 0.1, *sum);
    }
    const std::vector<Tensor>&a = some.finish(), &b = all.finish();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i])
        EXPECT_TRUE(same_bits(a[i], b[i])) << named.name << " " << model.infos()[i].name;
      else
        EXPECT_EQ(a[i].raw(), nullptr);
    }
  }
  Model model(small_model(), 7);
  EXPECT_THAT([&] { GradientSum(model, std::vector<bool>(3)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("found 3")));
}

TEST(Lora, StartsAsTheModelAndChangesOnlyAdapters) {
  Model base(small_model(), 5);
  TrainConfig config = small_training();
  config.learning_rate = 0.05;
  config.warmup_steps = 0;
  Trainer trainer = small_lora_trainer(config);
  for (std::size_t i = 0; i < base.infos().size(); ++i)
    EXPECT_TRUE(same_bits(base.parameters()[i], trainer.model().parameters()[i]));
  const double first = trainer.evaluate().loss;
  for (int i = 0; i < 10; ++i) trainer.step();
  EXPECT_LT(trainer.evaluate().loss, first - 0.1);
  const LoraAdapters before = small_adapters();
  ASSERT_NE(trainer.adapters(), nullptr);
  for (std::size_t v = 0; v < before.values.size(); ++v)
    EXPECT_FALSE(same_bits(before.values[v], trainer.adapters()->values[v]));
  EXPECT_EQ(trainer.optimizer().state().size(), 2 * before.values.size());
  add_lora(base, *trainer.adapters());  // the run computes with the base plus its adapters
  for (std::size_t i = 0; i < base.infos().size(); ++i)
    EXPECT_TRUE(same_bits(base.parameters()[i], trainer.model().parameters()[i])) << base.infos()[i].name;
}

void expect_resumes_bit_for_bit(const TrainConfig& config) {
  const TestDirectory straight;
  Trainer whole = small_lora_trainer(config);
  ASSERT_TRUE(run_training(whole, {straight.path()}, {}));
  EXPECT_THAT(entries(straight / "checkpoints/step-000010"),
              testing::ElementsAre("adapter_config.json", "adapter_model.safetensors", "checkpoint.json",
                                   "optimizer.safetensors"));
  for (const std::int64_t stop : {1, 4, 6}) {
    const TestDirectory broken;
    {
      Trainer first = small_lora_trainer(config);
      ASSERT_FALSE(run_training(first, {broken.path(), 0, 0, stop}, {}));
    }
    Trainer second = Trainer::resume(broken.path(), small_data());
    EXPECT_EQ(second.steps_done(), stop);
    ASSERT_TRUE(run_training(second, {broken.path()}, {}));
    EXPECT_EQ(weights(second), weights(whole)) << stop;
    EXPECT_EQ(second.best_loss(), whole.best_loss());
    for (const char* file : {"adapter_model.safetensors", "adapter_config.json", "best/adapter_model.safetensors",
                             "base/model.safetensors", "checkpoints/step-000010/checkpoint.json",
                             "checkpoints/step-000010/optimizer.safetensors"}) {
      EXPECT_EQ(contents(broken / file), contents(straight / file)) << file;
    }
  }
}

TEST(Lora, ResumesBitForBitWhereverItStopped) {
  for (const std::string& optimizer : optimizer_names()) {
    SCOPED_TRACE(optimizer);
    TrainConfig config = full_training();
    config.optimizer = optimizer;
    expect_resumes_bit_for_bit(config);
  }
}

TEST(Lora, SavesTheModelAndItsAdapters) {
  const TestDirectory directory;
  Trainer trainer = small_lora_trainer();
  run_training(trainer, {directory.path()}, {});
  LoadedModel base = load_model(directory / "base");
  const Model drawn(small_model(), 5);
  for (std::size_t i = 0; i < drawn.infos().size(); ++i)
    EXPECT_TRUE(same_bits(drawn.parameters()[i], std::as_const(base.model).parameters()[i]));
  add_lora(base.model, load_lora(directory.path(), base.model.config()));
  EXPECT_EQ(values(base.model.parameters()), weights(trainer));
  // A modified base is a different model: every checkpoint refuses it by name.
  std::ofstream(directory / "base/model.safetensors", std::ios::app) << "x";
  EXPECT_THAT([&] { Trainer::resume(directory.path(), small_data()); },
              ThrowsMessage<FileError>(HasSubstr("base/model.safetensors: expected")));
}

TEST(Lora, ARemovedDirectoryIsRecreatedWithItsModel) {
  const TestDirectory directory;
  const std::string run = directory / "run";
  Trainer trainer = small_lora_trainer();
  trainer.save(run);
  trainer.step();
  std::filesystem::remove_all(run);
  trainer.save(run);
  EXPECT_EQ(weights(trainer), [&] {
    Trainer again = Trainer::resume(run, small_data());
    return weights(again);
  }());
}

}  // namespace
}  // namespace qkv
