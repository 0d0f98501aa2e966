// SPDX-License-Identifier: Apache-2.0
// Output of qkv generate: several texts, stop strings, texts longer than the context.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "generate_command.h"

namespace {

using qkv_test::Finished;
using qkv_test::GenerateCommand;
using testing::HasSubstr;
using testing::Not;

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(GenerateCommand, PrintsOneTextPerLineInPromptOrder) {
  std::ofstream(path("prompts"), std::ios::binary) << "abc\nx\r\nlonger than the others\n";
  const std::vector<std::string> more = {"-n", "6", "--temp", "2", "-s", "4", "--json"};
  const auto with = [&](std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return generate(arguments, input);
  };
  const Finished finished = with({"--prompts", path("prompts")});
  EXPECT_EQ(finished.status, 0) << finished.err;
  const auto lines = json_lines(finished.out);
  ASSERT_EQ(lines.size(), 3u);
  const std::vector<std::string> prompts = {"abc", "x", "longer than the others"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i]["prompt"], i + 1);
    EXPECT_EQ(lines[i]["tokens"], json_lines(with({"-p", prompts[i]}).out).at(0)["tokens"]) << i;
    EXPECT_EQ(lines[i]["stopped"], "max_tokens");
  }
  EXPECT_EQ(with({"--prompts", path("prompts"), "-b", "2"}).out, finished.out);
  EXPECT_EQ(with({"--prompts", "-", "-b", "1"}, "abc\nx\r\nlonger than the others").out, finished.out);
  EXPECT_THAT(finished.err, HasSubstr("3 texts: 18 tokens in "));
}

TEST_F(GenerateCommand, SeveralTextsHaveHeadings) {
  const Finished finished = generate({"-p", "abc", "--samples", "2", "-n", "3", "--logit-bias", "65+1000"});
  EXPECT_EQ(finished.out, "==> prompt 1, sample 1 <==\nAAA\n==> prompt 1, sample 2 <==\nAAA\n") << finished.err;
  EXPECT_EQ(generate({"--prompts", "-", "-n", "2", "--logit-bias", "66+1e3"}, "a\nb\n").out,
            "==> prompt 1 <==\nBB\n==> prompt 2 <==\nBB\n");
  EXPECT_THAT(finished.err, HasSubstr("prompts: 3 tokens evaluated\n"));  // once
}

TEST_F(GenerateCommand, SamplesDifferAndTheFirstMatchesASingleRun) {
  const auto lines =
      json_lines(generate({"-p", "abc", "--samples", "3", "-n", "12", "--temp", "3", "--top-k", "0", "--json"}).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0]["tokens"], lines[1]["tokens"]);
  EXPECT_NE(lines[1]["tokens"], lines[2]["tokens"]);
  EXPECT_EQ(lines[0]["tokens"],
            json_lines(generate({"-p", "abc", "-n", "12", "--temp", "3", "--top-k", "0", "--json"}).out)[0]["tokens"]);
  EXPECT_EQ(lines[2]["sample"], 3);
}

TEST_F(GenerateCommand, AStopStringSpanningTokensEndsTheText) {
  // Tokens are bytes here, so any two-byte string spans tokens.
  const std::vector<std::string> base = {"-p", "abc",          "-n",   "30",           "--temp",
                                         "1",  "--logit-bias", "65+6", "--logit-bias", "66+6"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return generate(all);
  };
  const std::string text = with({}).out;
  ASSERT_THAT(text, HasSubstr("AB"));
  const Finished finished = with({"--stop", "AB", "--stop", "never"});
  EXPECT_EQ(finished.out, text.substr(0, text.find("AB")) + "\n");
  EXPECT_THAT(finished.err, HasSubstr("stopped: stop string"));
  EXPECT_EQ(with({"--stop", "AB", "--json"}).out.find("\"stopped\":\"stop_string\"") == std::string::npos, false);
  // Held back until the end, then shown.
  EXPECT_EQ(with({"--stop", text.substr(25, 5) + "Z"}).out, text);
}

TEST_F(GenerateCommand, ShiftContinuesPastTheEndOfTheContext) {
  save("model", 16, [](qkv::Model&) {});
  const Finished finished = generate({"-p", "12345", "-n", "40", "--shift", "--keep", "2", "--logit-bias", "256-inf"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("generation: 40 tokens"));
  EXPECT_THAT(finished.err, HasSubstr("context full (16 tokens); shifts: "));
  EXPECT_THAT(generate({"-p", "12345", "-n", "-1", "--logit-bias", "256-inf"}).err, HasSubstr("generation: 11 tokens"));
  EXPECT_EQ(generate({"-p", "12345", "--shift", "--keep", "15"}).status, 1);
  EXPECT_EQ(generate({"-p", "12345", "--shift", "--keep", "-3"}).status, 2);
  EXPECT_EQ(generate({"-p", "12345", "--keep", "3"}).status, 2);
}

TEST_F(GenerateCommand, RefusesInvalidOptions) {
  for (const char* bias : {"5", "+5", "5*2", "5+", "5+x", "5--1", "-1+2", "5+inf", "5+nan", "99999999999+1"}) {
    const Finished finished = generate({"-p", "x", "--logit-bias", bias});
    EXPECT_EQ(finished.status, 2) << bias;
    EXPECT_THAT(finished.err, testing::MatchesRegex("qkv: [^\n]*\n"));
  }
  for (const auto& more : std::vector<std::vector<std::string>>{{"--stop", ""},
                                                                {"--typical", "2"},
                                                                {"--frequency-penalty", "nan"},
                                                                {"--repeat-last-n", "-2"},
                                                                {"--samples", "0"},
                                                                {"-b", "0"},
                                                                {"--prompts", "x"}}) {
    std::vector<std::string> all = {"-p", "x"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(generate(all).status, 2) << more[0];
  }
  EXPECT_EQ(generate({"--prompts", "-"}, "").status, 1);
  EXPECT_EQ(generate({"--prompts", path("missing")}).status, 1);
}

TEST_F(GenerateCommand, ModelOutputCannotControlTheTerminal) {
  const std::string command = "$QKV generate -m " + path("model") + " -p x -n 3 --logit-bias 27+1000";
  EXPECT_EQ(qkv_test::run_shell(command).out, "\x1B\x1B\x1B\n");
  const int pseudo = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (pseudo < 0 || ::grantpt(pseudo) != 0 || ::unlockpt(pseudo) != 0 || ::access(::ptsname(pseudo), R_OK | W_OK) != 0)
    GTEST_SKIP() << "no pseudo-terminals here: " << std::strerror(errno);
  ::close(pseudo);
  const Finished terminal = qkv_test::run_shell("script -qec '" + command + "' /dev/null </dev/null");
  EXPECT_EQ(terminal.status, 0);
  EXPECT_THAT(terminal.out, HasSubstr("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
  EXPECT_THAT(terminal.out, Not(HasSubstr("\x1B")));
}

}  // namespace
