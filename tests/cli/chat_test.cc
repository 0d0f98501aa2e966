// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "chat_command.h"

namespace {

using qkv_test::ChatCommand;
using qkv_test::Finished;
using qkv_test::kLetters;
using qkv_test::kTemplate;
using qkv_test::run_qkv;
using testing::HasSubstr;

TEST_F(ChatCommand, RepliesToEachLineAndKeepsTheContext) {
  const Finished two = chat("Hello\nAnd then?\n", kLetters);
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, testing::MatchesRegex("[a-z]{8}\n[a-z]{8}\n"));
  EXPECT_THAT(two.err, HasSubstr("replies: 2; "));
  const Finished first = chat("Hello\n", kLetters), other = chat("Hullo\nAnd then?", kLetters);
  EXPECT_EQ(two.out.substr(0, 9), first.out);
  EXPECT_NE(two.out.substr(9), other.out.substr(9));  // the conversation so far matters
  // <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n is 24 tokens; cached tokens are not evaluated again: 1
  // uncached letter, <|im_end|>\n, and 28 tokens of the second question.
  EXPECT_THAT(first.err, HasSubstr("prompt tokens: 24;"));
  EXPECT_THAT(two.err, HasSubstr("prompt tokens: 55;"));
}

TEST_F(ChatCommand, PromptsFollowTheTemplate) {
  // The reply equals what qkv generate produces after the same tokens; that prompt cannot contain control tokens, so
  // only the number of the surrounding bytes is compared.
  const Finished with = chat("Hello\n", [] {
    std::vector<std::string> options = kLetters;
    options.insert(options.end(), {"--system", "Be brief."});
    return options;
  }());
  EXPECT_THAT(with.err, HasSubstr("prompt tokens: 43;"));  // <|im_start|>system\nBe brief.<|im_end|>\n is 19
  EXPECT_NE(with.out, chat("Hello\n", kLetters).out);
  write_template("{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}" + std::string(kTemplate));
  EXPECT_EQ(chat("Hello\n", kLetters).out, with.out);
  write_template(kTemplate);
  // Control tokens typed by a user are plain text: 10 of them.
  EXPECT_THAT(chat("Hello<|im_end|>\n", kLetters).err, HasSubstr("prompt tokens: 34;"));
}

TEST_F(ChatCommand, ResetClearsTheConversationAndExitEnds) {
  std::vector<std::string> options = kLetters;
  options[3] = "0";  // greedy: no randomness between the two
  const Finished finished = chat("Hello\n/reset\nHello\n/exit\nHello\n", options);
  EXPECT_EQ(finished.out.size(), 18u);
  EXPECT_EQ(finished.out.substr(0, 9), finished.out.substr(9));
  EXPECT_THAT(chat("/help\n").out, HasSubstr("/reset"));
  EXPECT_EQ(chat("").status, 0);
  EXPECT_EQ(chat("\n\n/exit\n").out, "");
}

TEST_F(ChatCommand, TheEndTokenEndsAReply) {
  EXPECT_EQ(chat("Hello\nYou\n", {"--logit-bias", "258+1000"}).out, "\n\n");
  EXPECT_EQ(chat("Hello\n", {"--logit-bias", "256+1000"}).out, "\n");
}

TEST_F(ChatCommand, ContinuesPastTheEndOfTheContext) {
  write_model(64);
  std::vector<std::string> options = kLetters;
  options[1] = "150";
  const Finished finished = chat("Hello\nOnce more\n", options);
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, testing::MatchesRegex("[a-z]{150}\n[a-z]{150}\n"));
  EXPECT_EQ(chat("Hello\n", {"--keep", "63"}).status, 2);
  EXPECT_EQ(chat("Hello\n", {"--system", std::string(100, 'x')}).status, 2);
}

TEST_F(ChatCommand, CtrlCStopsTheReplyButNotTheProgram) {
  write_model(4096);
  std::vector<std::string> options = kLetters;
  options[1] = "-1";
  options.insert(options.begin(), {"chat", "-m", path("model")});
  std::size_t sent = 0;
  const Finished finished = run_qkv(options, "One\nTwo\n/help\n", [&](const std::string& out, int pid) {
    const auto lines = static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n'));
    if (sent < 2 && lines == sent && !out.empty() && out.back() != '\n') {
      kill(pid, SIGINT);
      ++sent;
    }
  });
  EXPECT_EQ(sent, 2u);
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, testing::ContainsRegex("^[a-z]+\n[a-z]+\n  /reset"));
}

TEST_F(ChatCommand, AnUnknownTemplateIsRefusedWithAHint) {
  write_template("{{ '### Instruction: ' + message['content'] }}");
  const Finished unknown = chat("Hello\n");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, testing::MatchesRegex("qkv: [^\n]*### Instruction[^\n]*use --template chatml, [^\n]*\n"));
  EXPECT_EQ(chat("Hello\n", {"--template", "chatml", "-n", "1"}).status, 0);
  const Finished unfit = chat("Hello\n", {"--template", "llama3"});
  EXPECT_EQ(unfit.status, 1);
  EXPECT_THAT(unfit.err, HasSubstr("expected the token <|eot_id|>"));
  const Finished named = chat("Hello\n", {"--template", "alpaca"});
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.err, HasSubstr("'alpaca'"));
  std::filesystem::remove(path("model/tokenizer_config.json"));
  EXPECT_THAT(chat("Hello\n").err, HasSubstr("has no chat template; use --template"));
}

TEST_F(ChatCommand, TemplatesAreFoundInEveryLocation) {
  std::filesystem::remove(path("model/tokenizer_config.json"));
  std::ofstream(path("model/chat_template.jinja")) << kTemplate;
  EXPECT_EQ(chat("", {}).status, 0);
  std::filesystem::remove(path("model/chat_template.jinja"));
  const auto config = [&](const std::string& text) {
    std::ofstream(path("model/tokenizer_config.json")) << text;
    return chat("", {}).status;
  };
  const std::string quoted = nlohmann::json(kTemplate).dump();
  EXPECT_EQ(config(R"({"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": )" +
                   quoted + "}]}"),
            0);
  for (const char* bad : {"", "{", "[]", R"({"chat_template": 3})", R"({"chat_template": [3]})",
                          R"({"chat_template": [{"name": "default"}]})", R"({"a": 1, "a": 2})"}) {
    EXPECT_EQ(config(bad), 1) << bad;
  }
}

TEST_F(ChatCommand, AnUnknownCommandIsAnErrorWithASuggestion) {
  const Finished unknown = chat("Hello\n/rest\nHello\n", kLetters);
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err,
              testing::MatchesRegex("qkv: [^\n]*line 2: unknown command '/rest'; did you mean /reset\\? \\(commands: "
                                    "/reset, /exit, /help;[^\n]*\n"));
  EXPECT_THAT(unknown.out, testing::MatchesRegex("[a-z]{8}\n"));
  EXPECT_THAT(chat("/quit\n").err, HasSubstr("did you mean /exit?"));
  const Finished far = chat("/\x1B[2J\n");
  EXPECT_THAT(far.err, HasSubstr("(commands: /reset"));
  EXPECT_THAT(far.err, testing::Not(testing::AnyOf(HasSubstr("did you mean"), HasSubstr("\x1B"))));
  EXPECT_THAT(chat("/reset now\n").err, HasSubstr("/reset takes no arguments; found '/reset now'"));
  // Messages, not commands: a path, and a line that begins with a space.
  for (const char* question : {"/etc/hosts is what?\n", " /rest\n"}) {
    const Finished finished = chat(question, kLetters);
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_THAT(finished.out, testing::MatchesRegex("[a-z]{8}\n"));
  }
  EXPECT_EQ(chat(" \n\t\n/exit \n").out, "");  // empty lines, and a command with a trailing space
}

TEST_F(ChatCommand, AClosedPipeStopsItQuietly) {
  const Finished finished = qkv_test::run_shell(std::string("printf 'One\\nTwo\\n' | { ") + "sleep 0.2; $QKV chat -m " +
                                                path("model") + " -n 8; echo $? >&2; } | true");
  EXPECT_EQ(finished.err, "141\n");
}

}  // namespace
