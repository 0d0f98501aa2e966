// SPDX-License-Identifier: Apache-2.0
// Models, generation and training through the C API match the C++ API, and errors become statuses.
#include "qkv/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "qkv/generate.h"
#include "qkv/train.h"
#include "qkv_c.h"

namespace {

using ::testing::HasSubstr;

struct Free {
  void operator()(qkv_model* model) const { qkv_model_free(model); }
  void operator()(qkv_trainer* trainer) const { qkv_trainer_free(trainer); }
};
using ModelPtr = std::unique_ptr<qkv_model, Free>;
using TrainerPtr = std::unique_ptr<qkv_trainer, Free>;

qkv_model_config small() {
  qkv_model_config config;
  EXPECT_EQ(qkv_model_config_init(&config, nullptr), QKV_OK);
  config.n_layer = 1;
  config.n_head = 2;
  config.d_model = 8;
  config.ctx_len = 16;
  return config;
}

ModelPtr make(const qkv_model_config& config) {
  qkv_model* model = nullptr;
  EXPECT_EQ(qkv_model_create(&config, 3, nullptr, &model), QKV_OK) << qkv_last_error();
  return ModelPtr(model);
}

qkv::Model same_in_cxx() {
  qkv::ModelConfig config;
  config.n_layer = 1;
  config.n_head = 2;
  config.d_model = 8;
  config.ctx_len = 16;
  config.vocab_size = 257;
  return qkv::Model(config, 3);
}

const std::vector<std::int32_t> kTokens = {72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100};  // [2, 6]
const std::vector<std::int32_t> kTargets = {101, 108, 108, 111, 44, 32, 111, 114, 108, 100, 33, -1};  // [2, 6]
const qkv_batch kBatch = {2, 6, kTokens.data(), kTargets.data()};

TEST(CModel, ReportsTheConfiguration) {
  const ModelPtr model = make(small());
  qkv_model_config config;
  ASSERT_EQ(qkv_model_get_config(model.get(), &config), QKV_OK);
  EXPECT_EQ(config.n_kv_head, 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.d_ff, 32);
  EXPECT_EQ(config.vocab_size, 257);
  EXPECT_EQ(config.preset, nullptr);
  EXPECT_EQ(qkv_model_parameter_count(model.get()), qkv::parameter_count(same_in_cxx().config()));
  EXPECT_EQ(qkv_model_end_token(model.get()), 256);
  ASSERT_EQ(qkv_model_config_init(&config, "gpt2"), QKV_OK);
  EXPECT_EQ(config.d_model, 768);
  EXPECT_EQ(qkv_model_config_init(&config, "gpt9"), QKV_INVALID_ARGUMENT);
  EXPECT_THAT(qkv_last_error(), HasSubstr("gpt2"));
}

TEST(CModel, TextAndTokens) {
  const ModelPtr model = make(small());
  std::size_t count = 0;
  EXPECT_EQ(qkv_encode(model.get(), "a\0b", 3, nullptr, 0, &count), QKV_TOO_SMALL);
  EXPECT_STREQ(qkv_last_error(), "[qkv_encode] expected a capacity of 3; found 0");
  std::int32_t ids[4] = {-7, -7, -7, -7};
  ASSERT_EQ(qkv_encode(model.get(), "a\0b", 3, ids, 4, &count), QKV_OK);
  EXPECT_EQ(std::vector<std::int32_t>(ids, ids + 4), (std::vector<std::int32_t>{97, 0, 98, -7}));
  char text[3] = {};
  ASSERT_EQ(qkv_decode(model.get(), ids, 3, text, 3, &count), QKV_OK);
  EXPECT_EQ(std::string(text, 3), std::string("a\0b", 3));
  EXPECT_EQ(qkv_decode(model.get(), ids, 4, text, 3, &count), QKV_INVALID_ARGUMENT);  // -7 is not a token
  ASSERT_EQ(qkv_decode(model.get(), nullptr, 0, nullptr, 0, &count), QKV_OK);
  EXPECT_EQ(count, 0u);
}

TEST(CModel, LogitsAndLossMatchCxxBitForBit) {
  const ModelPtr model = make(small());
  qkv::Model expected = same_in_cxx();
  const qkv::Batch batch{2, 6, kTokens, kTargets, {}};
  double mean = 0;
  std::int64_t count = 0;
  ASSERT_EQ(qkv_model_loss(model.get(), &kBatch, &mean, &count), QKV_OK) << qkv_last_error();
  EXPECT_EQ(mean, expected.loss(batch).mean());
  EXPECT_EQ(count, 11);
  std::vector<float> logits(2 * 6 * 257);
  EXPECT_EQ(qkv_model_logits(model.get(), &kBatch, logits.data(), logits.size() - 1), QKV_TOO_SMALL);
  ASSERT_EQ(qkv_model_logits(model.get(), &kBatch, logits.data(), logits.size()), QKV_OK);
  const qkv::Tensor wanted = expected.logits(batch);  // [2, 6, 257]
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), wanted.data()));
}

void expect_steps_of_the_trainer(const char* optimizer) {
  const ModelPtr model = make(small());
  qkv_train_config config;
  qkv_train_config_init(&config);
  config.steps = 5;
  config.learning_rate = 1e-2;
  config.grad_clip = 0.5;
  config.optimizer = optimizer;
  qkv_trainer* made = nullptr;
  ASSERT_EQ(qkv_trainer_create(model.get(), &config, &made), QKV_OK) << qkv_last_error();
  const TrainerPtr trainer(made);

  qkv::TrainConfig same;
  same.steps = 5;
  same.learning_rate = 1e-2;
  same.grad_clip = 0.5;
  if (optimizer != nullptr) same.optimizer = optimizer;
  const std::vector<std::int32_t> data(32, 1);
  qkv::Trainer expected(same_in_cxx(), qkv::Tokenizer::bytes(), qkv::TokenDataset::from_tokens(data, {}, 257), same);
  const std::vector<qkv::Batch> batch = {{2, 6, kTokens, kTargets, {}}};
  for (int i = 1; i <= 5; ++i) {
    qkv_step_report report;
    ASSERT_EQ(qkv_trainer_step(trainer.get(), &kBatch, &report), QKV_OK) << qkv_last_error();
    const qkv::StepReport wanted = expected.step(batch);
    EXPECT_EQ(report.step, i);
    EXPECT_EQ(report.loss, wanted.loss);
    EXPECT_EQ(report.grad_norm, wanted.grad_norm);
    EXPECT_EQ(report.learning_rate, wanted.learning_rate);
    EXPECT_EQ(report.skipped, 0);
  }
  double mean = 0;
  ASSERT_EQ(qkv_model_loss(model.get(), &kBatch, &mean, nullptr), QKV_OK);
  EXPECT_EQ(mean, expected.model().loss(batch[0]).mean());
}

TEST(CModel, TrainingStepsMatchTheTrainer) {
  for (const char* optimizer : {static_cast<const char*>(nullptr), "adamw", "muon"})
    expect_steps_of_the_trainer(optimizer);
}

struct Heard {
  std::vector<std::int32_t> tokens;
  std::size_t most;
};

int hear(void* user, std::int32_t token) {
  auto& heard = *static_cast<Heard*>(user);
  heard.tokens.push_back(token);
  return heard.tokens.size() < heard.most;
}

TEST(CModel, GeneratesTheSameAsCxx) {
  const ModelPtr model = make(small());
  qkv::Model same = same_in_cxx();
  qkv_generate_options options;
  qkv_generate_options_init(&options);
  options.max_tokens = 6;
  options.temperature = 1.5;
  options.seed = 11;
  qkv::GenerateOptions wanted;
  wanted.max_tokens = 6;
  wanted.sampler.temperature = 1.5;
  wanted.sampler.seed = 11;
  wanted.end_tokens = {256};
  const std::vector<std::int32_t> expected = qkv::generate(same, kTokens, wanted).tokens;  // 12 + up to 4 tokens
  ASSERT_GE(expected.size(), 3u);

  std::vector<std::int32_t> tokens(6);
  std::size_t count = 0;
  qkv_stop_reason reason = -1;
  ASSERT_EQ(qkv_generate(model.get(), kTokens.data(), kTokens.size(), &options, nullptr, nullptr, tokens.data(), 6,
                         &count, &reason),
            QKV_OK)
      << qkv_last_error();
  tokens.resize(count);
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(reason, QKV_STOP_CONTEXT_FULL);

  Heard heard{{}, 2};
  EXPECT_EQ(qkv_generate(model.get(), kTokens.data(), kTokens.size(), &options, hear, &heard, tokens.data(), 1, &count,
                         &reason),
            QKV_TOO_SMALL);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(reason, QKV_STOP_CALLBACK);
  EXPECT_EQ(tokens[0], expected[0]);
  EXPECT_EQ(heard.tokens, std::vector<std::int32_t>(expected.begin(), expected.begin() + 2));
}

TEST(CModel, SaveAndLoadRoundTrips) {
  const std::string directory = ::testing::TempDir() + "/qkv_c_api_model";
  const ModelPtr model = make(small());
  ASSERT_EQ(qkv_model_save(model.get(), directory.c_str()), QKV_OK) << qkv_last_error();
  qkv_model* read = nullptr;
  ASSERT_EQ(qkv_model_load(directory.c_str(), nullptr, &read), QKV_OK) << qkv_last_error();
  const ModelPtr loaded(read);
  double a = 0, b = 1;
  ASSERT_EQ(qkv_model_loss(model.get(), &kBatch, &a, nullptr), QKV_OK);
  ASSERT_EQ(qkv_model_loss(loaded.get(), &kBatch, &b, nullptr), QKV_OK);
  EXPECT_EQ(a, b);
  std::filesystem::resize_file(directory + "/model.safetensors", 100);
  EXPECT_EQ(qkv_model_load(directory.c_str(), nullptr, &read), QKV_FILE_ERROR);
  EXPECT_THAT(qkv_last_error(), HasSubstr("model.safetensors"));
  EXPECT_EQ(read, nullptr);
  std::filesystem::remove_all(directory);
}

TEST(CModel, SelectsADeviceByName) {
  ASSERT_EQ(qkv_device_count(), 2U);
  EXPECT_STREQ(qkv_device_name(0), "cpu");
  EXPECT_STREQ(qkv_device_name(1), "reference");
  EXPECT_EQ(qkv_device_name(2), nullptr);
  const qkv_model_config config = small();
  qkv_model* made = nullptr;
  ASSERT_EQ(qkv_model_create(&config, 3, "reference", &made), QKV_OK) << qkv_last_error();
  const ModelPtr wide(made), narrow = make(config);
  EXPECT_STREQ(qkv_model_device(wide.get()), "reference");
  EXPECT_STREQ(qkv_model_device(narrow.get()), "cpu");
  double a = 0, b = 0;
  ASSERT_EQ(qkv_model_loss(wide.get(), &kBatch, &a, nullptr), QKV_OK);
  ASSERT_EQ(qkv_model_loss(narrow.get(), &kBatch, &b, nullptr), QKV_OK);
  EXPECT_NEAR(a, b, 1e-5);
  EXPECT_NE(a, b);
  std::int32_t tokens[4] = {};
  size_t count = 0;
  EXPECT_EQ(qkv_generate(wide.get(), kTokens.data(), 3, nullptr, nullptr, nullptr, tokens, 0, &count, nullptr),
            QKV_TOO_SMALL);
  EXPECT_EQ(qkv_model_create(&config, 3, "abacus", &made), QKV_INVALID_ARGUMENT);
  EXPECT_THAT(qkv_last_error(), HasSubstr("expected one of cpu, reference; found 'abacus'"));
}

TEST(CModel, InvalidArgumentsReturnAStatus) {
  const ModelPtr model = make(small());
  qkv_model* none = nullptr;
  EXPECT_EQ(qkv_model_load("/no/such/model", nullptr, &none), QKV_FILE_ERROR);
  EXPECT_EQ(qkv_model_load(nullptr, nullptr, &none), QKV_INVALID_ARGUMENT);
  EXPECT_EQ(qkv_model_load("x", nullptr, nullptr), QKV_INVALID_ARGUMENT);
  qkv_model_config config = small();
  config.vocab_size = 256;
  EXPECT_EQ(qkv_model_create(&config, 0, nullptr, &none), QKV_INVALID_ARGUMENT);
  EXPECT_THAT(qkv_last_error(), HasSubstr("at least 257; found 256"));
  config = small();
  config.d_model = 7;
  EXPECT_EQ(qkv_model_create(&config, 0, nullptr, &none), QKV_INVALID_ARGUMENT);
  config.preset = "nonsense";
  EXPECT_EQ(qkv_model_create(&config, 0, nullptr, &none), QKV_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);

  double mean = 0;
  const std::int32_t outside[] = {999};
  for (const qkv_batch& batch :
       {qkv_batch{1, 1, outside, outside}, qkv_batch{0, 6, outside, outside}, qkv_batch{1, -1, outside, outside},
        qkv_batch{std::int64_t{1} << 40, std::int64_t{1} << 40, outside, outside}, qkv_batch{1, 1, nullptr, outside},
        qkv_batch{1, 1, outside, nullptr}}) {
    EXPECT_EQ(qkv_model_loss(model.get(), &batch, &mean, nullptr), QKV_INVALID_ARGUMENT);
    EXPECT_STRNE(qkv_last_error(), "");
  }
  EXPECT_EQ(qkv_model_loss(nullptr, &kBatch, &mean, nullptr), QKV_INVALID_ARGUMENT);
  EXPECT_EQ(qkv_generate(model.get(), nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr),
            QKV_INVALID_ARGUMENT);

  qkv_trainer* made = nullptr;
  qkv_train_config train;
  qkv_train_config_init(&train);
  train.optimizer = "sgd";
  EXPECT_EQ(qkv_trainer_create(model.get(), &train, &made), QKV_INVALID_ARGUMENT);
  EXPECT_THAT(qkv_last_error(), HasSubstr("one of adamw, muon; found 'sgd'"));
  train.optimizer = nullptr;
  train.learning_rate = -1;
  EXPECT_EQ(qkv_trainer_create(model.get(), &train, &made), QKV_INVALID_ARGUMENT);
  ASSERT_EQ(qkv_trainer_create(model.get(), nullptr, &made), QKV_OK);
  const TrainerPtr trainer(made);
  const std::int32_t ignored[] = {-1};
  const qkv_batch without_targets = {1, 1, ignored + 0, ignored};
  EXPECT_EQ(qkv_trainer_step(trainer.get(), &without_targets, nullptr), QKV_INVALID_ARGUMENT);
  EXPECT_THAT(qkv_last_error(), HasSubstr("expected a target"));
  qkv_trainer_free(nullptr);
  qkv_model_free(nullptr);
}

}  // namespace
