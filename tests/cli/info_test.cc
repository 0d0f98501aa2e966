// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "process.h"
#include "qkv/model_file.h"

namespace {

using nlohmann::json;
using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

TEST(InfoCommand, APresetInNumbers) {
  const Finished finished = run_qkv({"info", "--preset", "andrea-120m", "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json facts = json::parse(finished.out);
  EXPECT_EQ(facts["config"]["d_model"], 768);
  EXPECT_EQ(facts["config"]["activation"], "relu");
  EXPECT_EQ(facts["parameters"], 98698752);
  EXPECT_EQ(facts["parameters_without_embeddings"], 98698752 - 768 * (8449 + 1024));
  EXPECT_EQ(facts["memory_bytes"]["weights"], 4 * 98698752);
  EXPECT_EQ(facts["memory_bytes"]["kv_cache"], 12 * 1024 * 2 * 768 * 4);
  EXPECT_NEAR(facts["training_flops_per_token"].get<double>() * 1e-6, 605, 0.5);
  std::int64_t count = 0;
  for (const json& tensor : facts["tensors"]) {
    std::int64_t size = 1;
    for (const std::int64_t n : tensor["shape"]) size *= n;
    count += size;
    EXPECT_FALSE(tensor["name"].get<std::string>().empty());
  }
  EXPECT_EQ(count, 98698752);
}

TEST(InfoCommand, ATiedHeadIsCountedOnce) {
  const json facts = json::parse(run_qkv({"info", "--preset", "gpt2", "--json"}).out);
  EXPECT_EQ(facts["parameters"], 124439808);
  EXPECT_EQ(facts["parameters_without_embeddings"], 124439808 - 768 * (50257 + 1024));
}

TEST(InfoCommand, TextForPeople) {
  const Finished finished = run_qkv({"info", "--preset", "andrea-12m"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("12,780,288  total"));
  EXPECT_THAT(finished.out, HasSubstr("d_model"));
  EXPECT_THAT(finished.out, HasSubstr("[2305, "));
}

TEST(InfoCommand, DifferingLayersAreReported) {
  const auto directory = std::filesystem::path(testing::TempDir()) / ("qkv_layers_" + std::to_string(getpid()));
  const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
  qkv::ModelConfig config;
  config.n_layer = 6;
  config.n_head = 2;
  config.d_model = 32;
  config.vocab_size = tokenizer.size();
  config.positions = qkv::Positions::rotary;
  config.qk_norm = qkv::QkNorm::per_head;
  config.activation = qkv::Activation::gelu;
  config.gated = true;
  config.norm_place = qkv::NormPlace::both;
  config.layers.assign(6, config);
  for (const std::size_t layer : {0, 1, 3, 4}) config.layers[layer].window_left = 511;
  for (const std::size_t layer : {2, 5}) config.layers[layer].rope_theta = 1e6;
  qkv::save_model(directory.string(), qkv::Model(config), tokenizer);
  const std::string text = run_qkv({"info", directory.string()}).out;
  EXPECT_THAT(text, HasSubstr("  0-1, 3-4        window 512, rope_theta 10000.0\n"));
  EXPECT_THAT(text, HasSubstr("  2, 5            full attention, rope_theta 1000000.0\n"));
  EXPECT_THAT(text, HasSubstr("qk_norm         per_head"));
  EXPECT_THAT(text, testing::Not(HasSubstr("softcap"))) << "not used";
  const json facts = json::parse(run_qkv({"info", directory.string(), "--json"}).out);
  EXPECT_EQ(facts["config"]["softcap"], 0);
  EXPECT_EQ(facts["config"]["layers"][2]["rope_theta"], 1e6);

  const auto steps = [&](const char* layer) {
    std::map<std::string, json> named;
    const std::string out =
        run_qkv({"explain", "-m", directory.string(), "--layer", layer, "--ctx", "8", "--json"}).out;
    const json all = json::parse(out);
    for (const json& step : all["steps"]) named[step["name"]] = step;
    return named;
  };
  const auto windowed = steps("1"), full = steps("2");
  for (const char* name : {"norm q", "norm k", "rotate q", "rotate k", "post norm", "gate", "up", "activation", "down",
                           "mlp post norm", "mlp residual"})
    EXPECT_EQ(windowed.count(name), 1U) << name;
  EXPECT_EQ(windowed.at("rotate q")["operands"][1], json::array({8, 16}));
  EXPECT_EQ(windowed.at("gate")["shape"], json::array({1, 8, 128}));
  EXPECT_EQ(windowed.at("gate")["flops"], 2.0 * 8 * 32 * 128);
  EXPECT_THAT(run_qkv({"explain", "-m", directory.string(), "--layer", "1"}).out, HasSubstr("j from i - 511 to i"));
  EXPECT_THAT(run_qkv({"explain", "-m", directory.string()}).out, HasSubstr("layer 0 of 6 (layers differ"));
  EXPECT_EQ(full.at("mask")["formula"], "S + M");
  EXPECT_EQ(run_qkv({"explain", "-m", directory.string(), "--layer", "6"}).status, 2);
  EXPECT_EQ(run_qkv({"explain", "--layer", "1"}).status, 2);
  std::filesystem::remove_all(directory);
}

TEST(InfoCommand, AModelDirectory) {
  const auto directory = std::filesystem::path(testing::TempDir()) / ("qkv_info_" + std::to_string(getpid()));
  const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
  qkv::ModelConfig config;
  config.n_layer = 1;
  config.n_head = 2;
  config.d_model = 32;
  config.vocab_size = tokenizer.size();
  config.activation = qkv::Activation::silu;
  config.gated = true;
  qkv::save_model(directory.string(), qkv::Model(config), tokenizer);
  const Finished finished = run_qkv({"info", "-m", directory.string(), "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json facts = json::parse(finished.out);
  EXPECT_EQ(facts["config"]["activation"], "silu");
  EXPECT_EQ(facts["config"]["head_dim"], 16);
  EXPECT_EQ(facts["tokenizer_size"], 257);
  EXPECT_EQ(facts["end_token"], 256);
  EXPECT_EQ(facts["format"], "qkv");
  std::int64_t bytes = 0;
  for (const json& tensor : facts["stored"]) bytes += tensor["bytes"].get<std::int64_t>();
  EXPECT_EQ(bytes, 4 * facts["parameters"].get<std::int64_t>());
  // The configuration without weights gives the same output.
  const Finished by_config = run_qkv({"info", "--config", (directory / "config.json").string(), "--json"});
  EXPECT_EQ(json::parse(by_config.out)["tensors"], facts["tensors"]);
  EXPECT_THAT(run_qkv({"info", "-m", directory.string()}).out, HasSubstr("257 tokens, end token 256"));
  std::filesystem::remove_all(directory);
}

}  // namespace
