// SPDX-License-Identifier: Apache-2.0
// Exit statuses, the one-line error messages, and broken standard streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process.h"
#include "qkv/version.h"

namespace {

using qkv_test::Finished;
using qkv_test::run_qkv;
using qkv_test::run_shell;
using testing::HasSubstr;
using testing::MatchesRegex;

// Exactly one line, "qkv: ...".
void expect_one_line(const Finished& finished) { EXPECT_THAT(finished.err, MatchesRegex("qkv: [^\n]+\n")); }

TEST(Frame, Version) {
  const Finished finished = run_qkv({"--version"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.out, "qkv " QKV_VERSION "\n");
  EXPECT_EQ(finished.err, "");
}

TEST(Frame, HelpNamesTheSubcommandsAndEachHasItsOwn) {
  const Finished finished = run_qkv({"--help"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.out, HasSubstr("generate"));
  EXPECT_THAT(finished.out, HasSubstr("info"));
  const Finished generate = run_qkv({"generate", "--help"});
  EXPECT_EQ(generate.status, 0);
  EXPECT_THAT(generate.out, HasSubstr("--repeat-penalty"));
  EXPECT_EQ(generate.err, "");
}

TEST(Frame, UsageErrorsAreStatusTwoAndOneLineThatPointsToHelp) {
  const std::vector<std::vector<std::string>> misuses = {
      {"dance"},
      {""},
      {"--frobnicate"},
      {"info", "--frobnicate"},
      {"info"},
      {"info", "--preset", "nobody"},
      {"info", "--preset", "gpt2", "-m", "dir"},
      {"generate"},
      {"generate", "-m"},
      {"generate", "-m", "dir", "--temp", "warm"},
      {"generate", "-m", "dir", "--temp", "-1"},
      {"generate", "-m", "dir", "--top-p", "1.5"},
      {"generate", "-m", "dir", "-n", "-3"},
      {"generate", "-m", "dir", "-t", "-1"},
      {"generate", "-m", "dir", "-p", "a", "-f", "b"},
  };
  for (const auto& arguments : misuses) {
    const Finished finished = run_qkv(arguments);
    SCOPED_TRACE(testing::PrintToString(arguments));
    EXPECT_EQ(finished.status, 2);
    EXPECT_EQ(finished.out, "");
    expect_one_line(finished);
    EXPECT_THAT(finished.err, HasSubstr(" --help)"));
  }
  EXPECT_THAT(run_qkv({"generate", "-m", "dir", "-n", "x"}).err, HasSubstr("(see qkv generate --help)"));
}

// By default CLI11 reads an empty value as 0, 010 as 8, and rounds a number that is too large to the nearest one.
TEST(Frame, NumbersAreDecimalAndFitOrAreRefused) {
  const std::vector<std::vector<std::string>> wrong = {
      {"generate", "-m", "dir", "--temp", ""},
      {"generate", "-m", "dir", "--top-k", ""},
      {"generate", "-m", "dir", "-n", "99999999999999999999"},
      {"generate", "-m", "dir", "--top-p", "1e400"},
      {"generate", "-m", "dir", "--temp", " 1"},
      {"generate", "-m", "dir", "-n", "0x10"},
      {"generate", "-m", "dir", "-n", "+-3"},
      {"generate", "-m", "dir", "-n", "1.5"},
      {"generate", "-m", "dir", "-s", "-1"},
      {"generate", "-m", "dir", "-s", "18446744073709551616"},
      {"chat", "-m", "dir", "--keep", ""},
      {"attend", "--q", "q", "--k", "k", "--v", "v", "--out", "o", "--scale", ""},
      {"attend", "--q", "q", "--k", "k", "--v", "v", "--out", "o", "-t", ""},
      {"train", "--data", "x", "--out", "y", "--steps", ""},
      {"train", "--data", "x", "--out", "y", "--steps", "0"},
      {"train", "--data", "x", "--out", "y", "--n-layer", "-1"},
      {"train", "--data", "x", "--out", "y", "--rope-theta", "nan"},
      {"train", "--data", "x", "--out", "y", "--steps", "99999999999999999999"},
      {"train", "--data", "x", "--out", "y", "--learning-rate", ""},
      {"train", "--data", "x", "--out", "y", "--save-patience", "nan"},
      {"train", "--data", "x", "--out", "y", "--stop-after", "0"},
      {"train", "--data", "x", "--out", "y", "--val-fraction", "nan"},
      {"tokenize", "--data", "x", "--out", "y", "--tokenizer", "bytes", "--val-fraction", ""},
      {"tokenize", "--data", "x", "--out", "y", "--tokenizer", "bytes", "--val-fraction", "1"},
      {"eval", "-m", "dir", "--data", "x", "--ctx-len", ""},
      {"convert", "a", "b", "--shard-bytes", "0"},
      {"explain", "--ctx", ""},
      {"inspect", "-m", "dir", "--top", "0"},
      {"bench", "peak", "--reps", ""},
      {"bench", "train", "--steps", ""},
      {"bench", "generate", "--depth", ""},
      {"bench", "attention", "--limit", "nan"},
  };
  for (const auto& arguments : wrong) {
    const Finished finished = run_qkv(arguments);
    SCOPED_TRACE(testing::PrintToString(arguments));
    EXPECT_EQ(finished.status, 2) << finished.err;
    expect_one_line(finished);
    EXPECT_LT(finished.err.size(), 200u);
  }
  // Ten, not eight; CLI11 parses a leading 0 as octal.
  EXPECT_THAT(run_qkv({"explain", "--ctx", "010", "--d-model", "64"}).out, HasSubstr("10 tokens"));
  EXPECT_THAT(run_qkv({"explain", "--ctx", "+7", "--d-model", "64"}).out, HasSubstr("7 tokens"));
}

TEST(Frame, AMissingModelIsStatusOneAndNamed) {
  for (const char* command : {"info", "generate"}) {
    const Finished finished = run_qkv({command, "-m", "no/such\nplace"});
    EXPECT_EQ(finished.status, 1);
    expect_one_line(finished);
    EXPECT_THAT(finished.err, HasSubstr("no/such place"));
  }
}

TEST(Frame, DashesAndUnderscoresAreAlikeInNamesButNotInValues) {
  EXPECT_THAT(run_qkv({"generate", "-m", "no_such_dir", "--top_k", "3", "--repeat_penalty=1.5", "-p", ""}).err,
              HasSubstr("no_such_dir"));
  EXPECT_THAT(run_qkv({"generate", "--model=no_such_dir", "--max_tokens", "3"}).err, HasSubstr("no_such_dir"));
}

TEST(Frame, UnwritableOutputIsAnError) {
  for (const char* command : {"$QKV --version > /dev/full", "$QKV info --preset gpt2 > /dev/full", "$QKV --help >&-",
                              "$QKV info --preset gpt2 >&-"}) {
    const Finished finished = run_shell(command);
    SCOPED_TRACE(command);
    EXPECT_EQ(finished.status, 1);
    expect_one_line(finished);
  }
  // With standard error closed as well, the exit status still reports the error.
  EXPECT_EQ(run_shell("$QKV --version > /dev/full 2>&-").status, 1);
}

TEST(Frame, AClosedPipeEndsItQuietlyLikeSigpipe) {
  for (const char* command : {"--version", "--help", "info --preset gpt2", "info --preset gpt2 --json",
                              "explain --preset gpt2", "devices", "man", "completion bash"}) {
    const Finished closed =
        run_shell(std::string("{ ") + qkv_test::kUntilReaderIsGone + "$QKV " + command + "; echo $? >&2; } | true");
    EXPECT_EQ(closed.err, "141\n") << command;
  }
}

}  // namespace
