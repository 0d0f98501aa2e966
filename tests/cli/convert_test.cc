// SPDX-License-Identifier: Apache-2.0
// Conversions between formats, and the output of verify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "process.h"
#include "qkv/model_file.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

class Convert : public testing::Test {
 protected:
  Convert() {
    fs::create_directories(folder_);
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.n_kv_head = 1;
    config.d_model = 64;
    config.d_ff = 64;
    config.vocab_size = 257;
    config.norm_gain = config.final_norm = config.tied_head = true;
    config.embedding_norm = false;
    config.activation = qkv::Activation::silu;
    config.gated = true;
    config.positions = qkv::Positions::rotary;
    config.norm_eps = 0x1p-16;  // GGUF stores it in f32
    qkv::save_model(path("llama"), qkv::Model(config, 3), qkv::Tokenizer::bytes());
    qkv::save_model(path("andrea"), qkv::Model(andrea(), 3), qkv::Tokenizer::bytes());
  }
  ~Convert() override { fs::remove_all(folder_); }

  static qkv::ModelConfig andrea() {
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.d_model = 32;
    config.ctx_len = 8;
    config.vocab_size = 257;
    return config;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void expect_same(const std::string& a, const std::string& b) const {
    const qkv::Model one = qkv::load_model(path(a)).model, two = qkv::load_model(path(b)).model;
    EXPECT_EQ(one.config(), two.config());
    for (std::size_t i = 0; i < one.infos().size(); ++i)
      EXPECT_EQ(std::memcmp(one.parameters()[i].raw(), two.parameters()[i].raw(), one.parameters()[i].bytes()), 0);
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("qkv_convert_" + std::to_string(getpid()));
};

TEST_F(Convert, RoundTripsThroughTheFormats) {
  const std::vector<std::vector<std::string>> steps = {
      {"llama", "hf", "--to", "hf"}, {"hf", "m.gguf", "--type", "f32"}, {"m.gguf", "back"}};
  for (const auto& step : steps) {
    std::vector<std::string> arguments{"convert", path(step[0]), path(step[1])};
    arguments.insert(arguments.end(), step.begin() + 2, step.end());
    const Finished finished = run_qkv(arguments);
    ASSERT_EQ(finished.status, 0) << finished.err;
    EXPECT_THAT(finished.out, HasSubstr("parameters\n"));
    const Finished verified = run_qkv({"verify", path(step[1])});
    EXPECT_EQ(verified.status, 0) << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("OK; "));
    EXPECT_EQ(run_qkv({"info", path(step[1])}).status, 0);
  }
  expect_same("llama", "back");
  EXPECT_THAT(run_qkv({"info", path("hf")}).out, HasSubstr("Hugging Face llama"));
  EXPECT_EQ(run_qkv({"generate", "-m", path("m.gguf"), "-p", "a", "-n", "2"}).status, 0);
}

// A chat model is still one after any number of conversions.
TEST_F(Convert, KeepsTheChatTemplateAndTheEndTokens) {
  const std::string chatml = "{{'<|im_start|>' + message['role']}}<|im_end|>";
  {
    qkv::LoadedModel model = qkv::load_model(path("llama"));
    qkv::save_model(path("llama"), model.model, model.tokenizer, {{10, 256, 11, 12}, chatml});
  }
  const std::vector<std::vector<std::string>> steps = {
      {"llama", "hf", "--to", "hf"}, {"hf", "again"}, {"again", "m.gguf", "--type", "q8_0"}, {"m.gguf", "back"}};
  for (const auto& step : steps) {
    std::vector<std::string> arguments{"convert", path(step[0]), path(step[1])};
    arguments.insert(arguments.end(), step.begin() + 2, step.end());
    const Finished finished = run_qkv(arguments);
    ASSERT_EQ(finished.status, 0) << finished.err;
    const bool fewer = step[1] == "m.gguf";
    if (fewer) {
      EXPECT_THAT(finished.out, HasSubstr("note: GGUF stores 3 of the 4 end tokens\n"));
    }
    const qkv::ModelFacts facts = qkv::inspect_model(path(step[1]));
    EXPECT_EQ(facts.chat_template, chatml);
    const bool last = fewer || step[1] == "back";
    EXPECT_EQ(facts.end_tokens, last ? std::vector({10, 256, 11}) : std::vector({10, 256, 11, 12}));
  }
  EXPECT_THAT(run_qkv({"info", path("back")}).out, HasSubstr("end tokens 10, 256, 11\n  chat template chatml\n"));
  EXPECT_EQ(json::parse(run_qkv({"info", path("back"), "--json"}).out)["end_tokens"], json({10, 256, 11}));
  EXPECT_EQ(json::parse(run_qkv({"info", path("andrea"), "--json"}).out)["chat_template"], nullptr);
}

TEST_F(Convert, ExplainsImpossibleConversions) {
  Finished finished = run_qkv({"convert", path("andrea"), path("x"), "--to", "hf"});
  EXPECT_EQ(finished.status, 2);
  EXPECT_THAT(finished.err,
              HasSubstr("cannot export " + path("andrea") +
                        " as a Hugging Face directory: expected a model of one of the families gpt2, "
                        "qwen3, qwen2 and llama; found one that differs from llama in embedding_norm true "
                        "instead of false"));
  EXPECT_EQ(run_qkv({"convert", path("llama"), path("x"), "--type", "q8_0"}).status, 2);
  EXPECT_EQ(run_qkv({"convert", path("none"), path("x")}).status, 1);
  EXPECT_FALSE(fs::exists(path("x")));
}

TEST_F(Convert, VerifyNamesTheFault) {
  const std::string weights = path("llama") + "/model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 4);
  const Finished finished = run_qkv({"verify", path("llama")});
  EXPECT_EQ(finished.status, 1);
  EXPECT_THAT(finished.err, HasSubstr("model.safetensors"));
  EXPECT_EQ(run_qkv({"verify", path("andrea") + "/tokenizer.json"}).status, 0);
  EXPECT_EQ(run_qkv({"verify", path("none")}).status, 1);
}

}  // namespace
