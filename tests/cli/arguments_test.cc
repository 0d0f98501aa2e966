// SPDX-License-Identifier: Apache-2.0
// --help, option names of other programs, suggestions, and messages that quote the user's input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "process.h"

namespace {

using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::vector<std::string>& arguments) {
  const Finished finished = run_qkv(arguments);
  EXPECT_NE(finished.status, 0) << testing::PrintToString(arguments);
  EXPECT_EQ(finished.out, "");
  return finished.err;
}

TEST(Help, ListsTheCommandsWithoutACommand) {
  const Finished finished = run_qkv({});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.out, HasSubstr("\nCommands:\n"));
  EXPECT_THAT(finished.out, HasSubstr("generate"));
  EXPECT_EQ(run_qkv({"help"}).out, finished.out);
}

TEST(Help, HelpCommandMatchesTheHelpOption) {
  EXPECT_EQ(run_qkv({"help", "train"}).out, run_qkv({"train", "--help"}).out);
  EXPECT_EQ(run_qkv({"help", "bench", "peak"}).out, run_qkv({"bench", "peak", "--help"}).out);
  EXPECT_THAT(error_of({"help", "tarin"}), HasSubstr("did you mean 'train'?"));
}

TEST(Help, IsWrappedNamesNoInternalsAndEndsWithExamples) {
  for (const char* command : {"attend", "tokenize", "train", "report", "generate", "chat", "eval", "info", "convert",
                              "verify", "explain", "inspect", "devices", "man", "completion"}) {
    SCOPED_TRACE(command);
    const std::string text = run_qkv({command, "--help"}).out;
    EXPECT_THAT(text, HasSubstr("\nExamples\n"));
    for (const char* internal : {"{false}", "INT", "FLOAT", "POSITIVE", "Excludes", " in ["})
      EXPECT_THAT(text, Not(HasSubstr(internal)));
    std::istringstream lines(text.substr(0, text.find("\nExamples\n")));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  ") && line.find("  -") == std::string::npos) continue;  // formulas, lists of words
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(Arguments, OptionNamesOfOtherProgramsWork) {
  const std::vector<std::vector<std::string>> habits = {
      {"generate", "-m", "nowhere", "-p", "x", "--n-predict", "3"},
      {"generate", "-m", "nowhere", "-p", "x", "--max_new_tokens=3"},
      {"generate", "-m", "nowhere", "-p", "x", "-n=3"},
      {"generate", "-m", "nowhere", "-p", "x", "--num-samples", "2"},
      {"generate", "-m", "nowhere", "-p", "x", "--temperature", "1"},
      {"generate", "-m", "nowhere", "-p", "x", "--batch", "2"},
      {"chat", "-m", "nowhere", "-sys", "be brief"},
      {"eval", "-m", "nowhere", "-f", "text", "-c", "64"},
      {"info", "--model=nowhere"},
  };
  for (const auto& arguments : habits)
    EXPECT_THAT(error_of(arguments), HasSubstr("nowhere")) << arguments[4 % arguments.size()];
  EXPECT_THAT(error_of({"train", "--data", "nowhere", "--out", "x", "--lr", "1e-3", "--n-embd", "48", "-c", "32"}),
              HasSubstr("nowhere"));
  EXPECT_THAT(run_qkv({"explain", "--heads", "2", "--hidden-size", "64", "--batch", "1"}).out, HasSubstr("64"));
}

TEST(Arguments, UnsupportedOptionsGetAnExplanation) {
  EXPECT_THAT(error_of({"generate", "-m", "x", "-ngl", "99"}), HasSubstr("--device"));
  EXPECT_THAT(error_of({"train", "--compile"}), HasSubstr("leave it out"));
  EXPECT_THAT(error_of({"train", "--init_from=resume"}), HasSubstr("--resume"));
}

TEST(Arguments, TyposGetASuggestion) {
  EXPECT_THAT(error_of({"genrate"}), HasSubstr("did you mean 'generate'?"));
  EXPECT_THAT(error_of({"generate", "-m", "x", "--tpo-p", "1"}), HasSubstr("did you mean '--top-p'?"));
  EXPECT_THAT(error_of({"train", "--learning-rat", "1"}), HasSubstr("did you mean '--learning-rate'?"));
  EXPECT_THAT(error_of({"dance"}), Not(HasSubstr("did you mean")));
}

TEST(Arguments, AllProblemsAreReportedTogether) {
  const std::string error = error_of({"generate", "--top-k", "many", "--frobnicate", "1", "-n", "x"});
  for (const char* part : {"--model is required", "--frobnicate", "--top-k", "'many'", "'x'"})
    EXPECT_THAT(error, HasSubstr(part));
}

TEST(Arguments, MessagesNameTheOption) {
  EXPECT_THAT(error_of({"generate", "-m", "x", "-p", "x", "--top-p", "3"}),
              HasSubstr("qkv: --top-p must be within 0 ... 1; found 3 (see"));
  EXPECT_THAT(error_of({"train", "--data", "x", "--out", "y", "--positions", "rotary", "--rope-share", "3"}),
              HasSubstr("qkv: --rope-share expected"));
  EXPECT_THAT(error_of({"train", "--data", "x", "--out", "y", "--d-model", "10", "--n-head", "3"}),
              HasSubstr("qkv: --d-model must be a multiple of --n-head unless --head-dim is given"));
}

TEST(Arguments, PathsThatAreNotModelsSayWhatWasExpected) {
  EXPECT_THAT(error_of({"info", "-m", "/etc"}), HasSubstr("expected a model directory with config.json"));
  EXPECT_THAT(error_of({"tokenize", "--data", "/etc/hostname", "--out", "x", "--tokenizer", "bpe"}),
              HasSubstr("did you mean bpe:4096?"));
}

}  // namespace
