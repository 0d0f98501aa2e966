// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "process.h"
#include "qkv/model_file.h"

namespace {

using qkv_test::Finished;
using qkv_test::run_qkv;
using qkv_test::run_shell;
using testing::HasSubstr;
using testing::Not;

// A model of random weights over bytes, in a directory of its own.
class GenerateCommand : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) / ("qkv_generate_" + std::to_string(getpid()));
    save("model", 64, [](qkv::Model&) {});
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  template <class Change>
  void save(const std::string& name, std::int64_t ctx_len, const Change& change) {
    const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.d_model = 32;
    config.vocab_size = tokenizer.size();
    config.ctx_len = ctx_len;
    qkv::Model model(config, 1);
    change(model);
    qkv::save_model(path(name), model, tokenizer);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  Finished generate(std::vector<std::string> arguments, const std::string& input = "") const {
    arguments.insert(arguments.begin(), {"generate", "-m", path("model")});
    return run_qkv(arguments, input);
  }

  std::filesystem::path directory_;
};

TEST_F(GenerateCommand, ThreeWaysToGiveTheSamePrompt) {
  const std::string prompt = "In the_beginning \xE6\xAD\xAA \xFF";
  std::ofstream(path("prompt.txt"), std::ios::binary) << prompt;
  const Finished by_option = generate({"-n", "20", "-p", prompt});
  const Finished by_file = generate({"-n", "20", "-f", path("prompt.txt")});
  const Finished by_input = generate({"-n", "20"}, prompt);
  EXPECT_EQ(by_option.status, 0) << by_option.err;
  EXPECT_NE(by_option.out, "");
  EXPECT_EQ(by_file.out, by_option.out);
  EXPECT_EQ(by_input.out, by_option.out);
  EXPECT_THAT(by_option.err, HasSubstr("prompt: 22 tokens in "));
  EXPECT_THAT(by_option.err, HasSubstr("generation: 20 tokens in "));
  EXPECT_THAT(by_option.err, HasSubstr("tokens/s"));
}

TEST_F(GenerateCommand, TheSameSeedGivesTheSameTextWithAnyNumberOfThreads) {
  const std::vector<std::string> base = {"-p", "abc", "-n", "40", "--top-k", "0", "--min-p", "0", "-s"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return generate(more).out;
  };
  EXPECT_EQ(with({"7"}), with({"7", "-t", "1"}));
  EXPECT_EQ(with({"7", "-t", "3"}), with({"7", "-t", "1"}));
  EXPECT_NE(with({"7"}), with({"8"}));
  // Temperature 0 does not look at the seed.
  EXPECT_EQ(with({"7", "--temp", "0"}), with({"8", "--temp", "0"}));
}

TEST_F(GenerateCommand, OutputIsWholeUtf8WhateverTheModelSays) {
  // A model of random weights speaks random bytes.
  const Finished finished =
      generate({"-p", "x", "-n", "60", "--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  std::ofstream(path("out.txt"), std::ios::binary) << finished.out;
  EXPECT_EQ(run_shell("iconv -f UTF-8 -t UTF-8 " + path("out.txt")).status, 0);
}

TEST_F(GenerateCommand, SaysWhenTheContextIsFull) {
  save("model", 8, [](qkv::Model&) {});
  const Finished finished = generate({"-p", "12345", "-n", "10", "--temp", "0"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.err, HasSubstr("generation: 3 tokens"));
  EXPECT_THAT(finished.err, HasSubstr("the context of 8 tokens is full"));
  EXPECT_THAT(generate({"-p", "12345", "-n", "2"}).err, Not(HasSubstr("stopped")));
  const Finished refused = generate({"-p", "123456789"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, testing::MatchesRegex("qkv: [^\n]*8 tokens; found 9\n"));
}

TEST_F(GenerateCommand, AnEmptyPromptBeginsANewText) {
  const Finished finished = generate({"-p", "", "-n", "5"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.err, HasSubstr("prompt: 1 tokens"));
  EXPECT_EQ(generate({"-n", "5"}, "").out, finished.out);
}

TEST_F(GenerateCommand, NaNWeightsAreAnErrorAndNotText) {
  save("model", 8, [](qkv::Model& model) {
    for (qkv::Tensor& tensor : model.parameters()) tensor.data()[0] = std::nanf("");
  });
  const Finished finished = generate({"-p", "1", "-n", "3"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_THAT(finished.err, testing::MatchesRegex("qkv: [^\n]*NaN[^\n]*\n"));
}

TEST_F(GenerateCommand, CtrlCEndsCleanly) {
  save("model", 20000, [](qkv::Model&) {});
  bool sent = false;
  const Finished finished = run_qkv({"generate", "-m", path("model"), "-p", "x", "-n", "19000", "--temp", "0"}, "",
                                    [&](const std::string& out, int pid) {
                                      if (!out.empty() && !sent) kill(pid, SIGINT);
                                      sent = sent || !out.empty();
                                    });
  EXPECT_TRUE(sent);
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out.back(), '\n');
  EXPECT_THAT(finished.err, HasSubstr("stopped: interrupted"));
}

TEST_F(GenerateCommand, AClosedPipeStopsIt) {
  const Finished finished = run_shell(std::string("{ ") + qkv_test::kUntilReaderIsGone + "$QKV generate -m " +
                                      path("model") + " -p x -n 60; echo $? >&2; } | true");
  EXPECT_THAT(finished.err, testing::EndsWith("\n1\n"));
}

}  // namespace
