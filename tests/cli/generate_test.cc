// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "generate_command.h"

namespace {

using qkv_test::Finished;
using qkv_test::GenerateCommand;
using qkv_test::run_qkv;
using qkv_test::run_shell;
using testing::HasSubstr;
using testing::Not;

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
  // The seed has no effect at temperature 0.
  EXPECT_EQ(with({"7", "--temp", "0"}), with({"8", "--temp", "0"}));
}

TEST_F(GenerateCommand, OutputIsAlwaysValidUtf8) {
  // A model with random weights generates random bytes.
  const Finished finished =
      generate({"-p", "x", "-n", "60", "--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  std::ofstream(path("out.txt"), std::ios::binary) << finished.out;
  EXPECT_EQ(run_shell("iconv -f UTF-8 -t UTF-8 " + path("out.txt")).status, 0);
}

TEST_F(GenerateCommand, ReportsAFullContext) {
  save("model", 8, [](qkv::Model&) {});
  const Finished finished = generate({"-p", "12345", "-n", "10", "--temp", "0"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.err, HasSubstr("generation: 3 tokens"));
  EXPECT_THAT(finished.err, HasSubstr("context full (8 tokens)"));
  EXPECT_THAT(generate({"-p", "12345", "-n", "2"}).err, Not(HasSubstr("stopped")));
  const Finished refused = generate({"-p", "123456789"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, testing::MatchesRegex("qkv: [^\n]*8 tokens; found 9\n"));
}

TEST_F(GenerateCommand, AnEmptyPromptStartsANewText) {
  const Finished finished = generate({"-p", "", "-n", "5"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.err, HasSubstr("prompt: 1 token in "));
  EXPECT_EQ(generate({"-n", "5"}, "").out, finished.out);
}

TEST_F(GenerateCommand, NaNWeightsAreAnErrorAndNotText) {
  save("model", 8, [](qkv::Model& model) {
    for (qkv::Tensor& tensor : *model.change_parameters()) tensor.data()[0] = std::nanf("");
  });
  const Finished finished = generate({"-p", "1", "-n", "3"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_THAT(finished.err, testing::MatchesRegex("qkv: [^\n]*not finite\n"));
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
  EXPECT_EQ(finished.status, 130) << finished.err;
  EXPECT_EQ(finished.out.back(), '\n');
  EXPECT_THAT(finished.err, HasSubstr("stopped: interrupted"));
}

TEST_F(GenerateCommand, AClosedPipeStopsItQuietly) {
  for (const char* more : {"", " --samples 3", " --json"}) {
    const Finished finished = run_shell(std::string("{ ") + qkv_test::kUntilReaderIsGone + "$QKV generate -m " +
                                        path("model") + " -p x -n 60" + more + "; echo $? >&2; } | true");
    EXPECT_EQ(finished.err, "141\n") << more;
  }
}

}  // namespace
