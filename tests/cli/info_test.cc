// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
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
  EXPECT_THAT(finished.out, HasSubstr("12,780,288  in all"));
  EXPECT_THAT(finished.out, HasSubstr("d_model"));
  EXPECT_THAT(finished.out, HasSubstr("[2305, "));
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
  // The configuration alone says the same.
  const Finished by_config = run_qkv({"info", "--config", (directory / "config.json").string(), "--json"});
  EXPECT_EQ(json::parse(by_config.out)["tensors"], facts["tensors"]);
  EXPECT_THAT(run_qkv({"info", "-m", directory.string()}).out, HasSubstr("257 tokens, end token 256"));
  std::filesystem::remove_all(directory);
}

}  // namespace
