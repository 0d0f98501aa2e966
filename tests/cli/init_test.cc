// SPDX-License-Identifier: Apache-2.0
// qkv train --init: models of each family and format are trained further, with their own tokenizers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "process.h"
#include "qkv/andrea.h"
#include "qkv/lora.h"
#include "qkv/model_file.h"

namespace {

namespace fs = std::filesystem;
using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

class TrainInit : public testing::Test {
 protected:
  TrainInit() {
    fs::create_directories(folder_);
    std::string text;
    for (int i = 0; text.size() < 12000; i = (i * 5 + 3) % 997)
      text += "the word " + std::to_string(i) + " was said.\n";
    std::ofstream(path("text.txt"), std::ios::binary) << text;
    qkv::save_model(path("own"), qkv::Model(llama(), 3), bpe(text));
    qkv::save_hugging_face(path("hf_llama"), qkv::Model(llama(), 4), bpe(text));
    qkv::save_hugging_face(path("hf_gpt2"), qkv::Model(gpt2(), 5), bpe(text));
    qkv::save_gguf(path("llama_q8.gguf"), qkv::Model(llama(), 6), bpe(text), "q8_0");
    qkv::save_gguf(path("gpt2_q4.gguf"), qkv::Model(gpt2(), 7), bpe(text), "q4_0");
    const qkv::Tokenizer harris = qkv::Tokenizer::train_harris(text, 280);
    qkv::AndreaLayout layout;
    layout.order = "wte,wpe,lm_head,wo,wq,wk,wv,fc1,fc2";  // stored in andrea.json
    fs::create_directory(path("andrea"));
    qkv::save_andrea(path("andrea/a.bin"), qkv::Model(andrea(harris.size()), 8), harris, layout, 7, {}, {});
  }
  ~TrainInit() override { fs::remove_all(folder_); }

  static qkv::Tokenizer bpe(const std::string& text) { return qkv::Tokenizer::train_bpe(text, 288, {}); }
  static qkv::ModelConfig llama() {
    qkv::ModelConfig c;
    c.n_layer = 1;
    c.n_head = 2;
    c.n_kv_head = 1;
    c.d_model = 64;
    c.d_ff = 96;
    c.ctx_len = 24;
    c.vocab_size = 300;  // more than the tokenizer has
    c.norm_gain = c.final_norm = true;
    c.embedding_norm = false;
    c.activation = qkv::Activation::silu;
    c.gated = true;
    c.positions = qkv::Positions::rotary;
    c.norm_eps = 0x1p-16;
    return c;
  }
  static qkv::ModelConfig gpt2() {
    qkv::ModelConfig c = llama();
    c.n_kv_head = 0;
    c.norm = qkv::Norm::layernorm;
    c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = c.tied_head = true;
    c.activation = qkv::Activation::gelu;
    c.gated = false;
    c.positions = qkv::Positions::learned;
    return c;
  }
  static qkv::ModelConfig andrea(std::int64_t vocab_size) {
    qkv::ModelConfig c;
    c.n_layer = 1;
    c.n_head = 2;
    c.d_model = 32;
    c.ctx_len = 24;
    c.vocab_size = vocab_size;
    return c;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Finished train(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"train", "--batch-size", "2", "--steps", "2", "--eval-iters", "1", "-t", "1"});
    return run_qkv(arguments);
  }
  void expect_refused(const Finished& done, int status, const std::string& says) const {
    EXPECT_EQ(done.status, status) << done.err;
    EXPECT_THAT(done.err, HasSubstr(says));
    EXPECT_FALSE(fs::exists(path("x")));
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("qkv_init_" + std::to_string(getpid()));
};

bool same(const qkv::Model& one, const qkv::Model& two) {
  if (one.config() != two.config()) return false;
  for (std::size_t i = 0; i < one.infos().size(); ++i)
    if (std::memcmp(one.parameters()[i].raw(), two.parameters()[i].raw(), one.parameters()[i].bytes()) != 0)
      return false;
  return true;
}

TEST_F(TrainInit, ContinuesFromEveryFamilyAndFormat) {
  for (const std::string name : {"own", "hf_llama", "hf_gpt2", "llama_q8.gguf", "gpt2_q4.gguf", "andrea/a.bin"}) {
    SCOPED_TRACE(name);
    const std::string out = path("run_" + fs::path(name).filename().string());
    const Finished done = train({"--init", path(name), "--data", path("text.txt"), "--out", out, "--seq-len", "16"});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("2 steps of 32 tokens"));
    const qkv::LoadedModel source = qkv::load_model(path(name));
    const qkv::LoadedModel first = qkv::load_model(out + "/checkpoints/step-000000"), last = qkv::load_model(out);
    EXPECT_TRUE(same(source.model, first.model));
    EXPECT_FALSE(same(source.model, last.model));
    EXPECT_EQ(source.tokenizer.json(), last.tokenizer.json());
  }
  // Its output can be used with --init again.
  EXPECT_EQ(train({"--init", path("run_own"), "--data", path("text.txt"), "--out", path("again")}).status, 0);
}

// A chat model stays one after fine-tuning, with or without adapters, resumed or not.
TEST_F(TrainInit, KeepsTheChatTemplateAndTheEndTokens) {
  const std::string jinja = "{{'<|im_start|>' + message['role']}}";
  {
    const qkv::LoadedModel own = qkv::load_model(path("own"));
    qkv::save_gguf(path("talks.gguf"), own.model, own.tokenizer, "f32", {{11, 10}, jinja});
  }
  for (const bool lora : {false, true}) {
    SCOPED_TRACE(lora);
    const std::string out = path(lora ? "talks_lora" : "talks"), model = lora ? out + "/base" : out;
    std::vector<std::string> options{"--init", path("talks.gguf"), "--data", path("text.txt"), "--out", out};
    options.insert(options.end(), {"--seq-len", "16", "--stop-after", "1", "--eval-interval", "1"});
    if (lora) options.insert(options.end(), {"--lora", "2"});
    ASSERT_EQ(train(options).status, 0);
    const Finished resumed = run_qkv({"train", "--resume", "--out", out});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    for (const std::string& written :
         lora ? std::vector{model}
              : std::vector{model, out + "/best", out + "/checkpoints/step-000000", out + "/checkpoints/step-000002"}) {
      const qkv::ModelFacts facts = qkv::inspect_model(written);
      EXPECT_EQ(facts.chat_template, jinja) << written;
      EXPECT_THAT(facts.end_tokens, testing::ElementsAre(11, 10)) << written;
    }
    // Its checksum is part of the checkpoint.
    const std::string checkpoint = out + "/checkpoints/step-000002";
    const auto list = nlohmann::json::parse(std::ifstream(checkpoint + "/checkpoint.json"));
    EXPECT_TRUE(list["files"].contains((lora ? "../../base/" : "") + std::string("chat_template.jinja")));
  }
}

TEST_F(TrainInit, AcceptsOnlyTokenFilesOfTheModelsTokenizer) {
  const auto tokenize = [&](const std::string& tokenizer, const std::string& out) {
    return run_qkv({"tokenize", "--data", path("text.txt"), "--tokenizer", tokenizer, "--out", path(out)}).status;
  };
  for (const std::string name : {"own", "hf_gpt2", "llama_q8.gguf", "andrea/a.bin"}) {
    SCOPED_TRACE(name);
    const std::string tokens = fs::path(name).filename().string() + ".tokens";
    ASSERT_EQ(tokenize(path(name), tokens), 0);
    const std::string out = path("run_" + tokens);
    EXPECT_EQ(train({"--init", path(name), "--data", path(tokens), "--out", out}).status, 0);
  }
  ASSERT_EQ(tokenize("bpe:288", "same.tokens"), 0);  // trained on part of the text: other merges
  ASSERT_EQ(tokenize("bytes", "bytes.tokens"), 0);
  expect_refused(train({"--init", path("own"), "--data", path("bytes.tokens"), "--out", path("x")}), 1,
                 "bytes.tokens: was made with a different tokenizer (257 tokens) than " + path("own") + " (288)");
  expect_refused(train({"--init", path("andrea/a.bin"), "--data", path("same.tokens"), "--out", path("x")}), 1,
                 "same.tokens: was made with a different tokenizer");
}

TEST_F(TrainInit, RefusesOptionsThatContradictTheFile) {
  const std::vector<std::string> base{"--init", path("own"), "--data", path("text.txt"), "--out", path("x")};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(arguments);
  };
  expect_refused(with({"--d-model", "128"}), 2, "--d-model 128, but the model has 64");
  expect_refused(with({"--ctx-len", "16"}), 2,
                 "--ctx-len 16, but the model has 24 (--seq-len trains on shorter sequences)");
  expect_refused(with({"--activation", "relu"}), 2, "--activation relu, but the model has ");
  expect_refused(with({"--no-final-norm"}), 2, "--final-norm false, but the model has true");
  expect_refused(with({"--preset", "gpt2"}), 2, "cannot change");
  expect_refused(with({"--tokenizer", "bytes"}), 2, "leave out --tokenizer");
  expect_refused(with({"--init-order", "wte"}), 2, "ANDREA checkpoint");
  expect_refused(with({"--seq-len", "25"}), 1, "at most ctx_len = 24");
  expect_refused(train({"--init", path("none"), "--data", path("text.txt"), "--out", path("x")}), 1, "none");
  EXPECT_EQ(with({"--n-layer", "1", "--seq-len", "8", "--out", path("fits")}).status, 0);
  const Finished resumed = train({"--resume", "--init", path("own"), "--out", path("fits")});
  EXPECT_EQ(resumed.status, 2);
  EXPECT_THAT(resumed.err, HasSubstr("leave out --init"));
  EXPECT_EQ(train({"--resume", "--out", path("fits"), "--steps", "3"}).status, 0);
}

TEST_F(TrainInit, TakesTheLayoutOfACheckpointFromOptions) {
  fs::remove(path("andrea/andrea.json"));
  const std::vector<std::string> base{"--init", path("andrea/a.bin"), "--data", path("text.txt"), "--out", path("x")};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(arguments);
  };
  EXPECT_EQ(with({}).status, 1);  // no preset has this number of parameters
  const qkv::ModelConfig config = qkv::load_model(path("own")).model.config();
  expect_refused(with({"--init-order", "wte,wpe"}), 2, "--init-preset or --init-config");
  expect_refused(with({"--init-config", path("own/config.json")}), 1, "parameters");
}

TEST_F(TrainInit, AdaptersAreTrainedAndMerged) {
  for (const std::string name : {"hf_llama", "gpt2_q4.gguf", "andrea/a.bin"}) {
    SCOPED_TRACE(name);
    const std::string out = path("lora_" + fs::path(name).filename().string()), joined = out + "_joined";
    const std::vector<std::string> base{"--init", path(name), "--data", path("text.txt"),
                                        "--out",  out,        "--lora", "2,3"};
    const Finished done = train(base);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("adapters: rank 2, alpha 3, "));
    EXPECT_THAT(done.out, HasSubstr("qkv convert " + out + "/base MODEL --lora " + out));
    EXPECT_TRUE(same(qkv::load_model(path(name)).model, qkv::load_model(out + "/base").model));
    ASSERT_EQ(run_qkv({"convert", path(name), joined, "--lora", out}).status, 0);
    qkv::LoadedModel wanted = qkv::load_model(path(name));
    qkv::add_lora(wanted.model, qkv::load_lora(out, wanted.model.config()));
    EXPECT_TRUE(same(wanted.model, qkv::load_model(joined).model));
    EXPECT_FALSE(same(qkv::load_model(path(name)).model, wanted.model));
    const auto text = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"generate", "-p", "the", "-n", "8", "--temp", "0", "-m"});
      return run_qkv(more).out;
    };
    EXPECT_EQ(text({out + "/base", "--lora", out}), text({joined}));
    EXPECT_EQ(train({"--resume", "--out", out, "--steps", "3", "--lora", "2,3"}).status, 0);
    EXPECT_EQ(train({"--resume", "--out", out, "--steps", "4", "--lora", "4"}).status, 2);
  }
}

TEST_F(TrainInit, InvalidAdaptersAreRefused) {
  const std::vector<std::string> base{"--data", path("text.txt"), "--out", path("x")};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(arguments);
  };
  const std::string own = path("own"), gpt2 = path("hf_gpt2");
  expect_refused(with({"--lora", "2"}), 2, "--lora needs --init");
  expect_refused(with({"--init", own, "--lora", "0"}), 2, "found '0'");
  expect_refused(with({"--init", own, "--lora", "2,x"}), 2, "found '2,x'");
  expect_refused(with({"--init", own, "--lora", "65"}), 2, "rank expected at most the smaller side");
  expect_refused(with({"--init", own, "--lora-targets", "wq"}), 2, "needs --lora");
  expect_refused(with({"--init", own, "--lora", "2", "--lora-targets", "wq,head"}), 2, "found 'head'");
  expect_refused(with({"--init", gpt2, "--lora", "2", "--lora-targets", "wq"}), 2, "all or none of wq, wk, wv");
  EXPECT_EQ(run_qkv({"convert", own, path("y"), "--lora", gpt2}).status, 1);
}

}  // namespace
