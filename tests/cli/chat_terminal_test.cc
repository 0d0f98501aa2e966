// SPDX-License-Identifier: Apache-2.0
// qkv chat at a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <regex>
#include <sstream>

#include "chat_command.h"
#include "terminal.h"

namespace {

using qkv_test::Terminal;
using testing::HasSubstr;
using testing::Not;

class ChatTerminal : public qkv_test::ChatCommand {
 protected:
  void SetUp() override {
    ChatCommand::SetUp();
    if (const std::string reason = qkv_test::no_terminals(); !reason.empty()) GTEST_SKIP() << reason;
  }
  std::vector<std::string> environment(const std::string& term = "xterm") const {
    return {"XDG_STATE_HOME=" + path("state"), "TERM=" + term, "EDITRC=" + path("no_editrc"), "LC_ALL=C"};
  }
  // As kLetters, without its seed; `more` replaces its other options.
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"chat", "-m", path("model")};
    for (std::size_t i = 0; i < qkv_test::kLetters.size(); i += 2) {
      const std::string& name = qkv_test::kLetters[i];
      if (name == "-s" || std::find(more.begin(), more.end(), name) != more.end()) continue;
      all.insert(all.end(), {name, qkv_test::kLetters[i + 1]});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string history_path() const { return path("state/qkv/chat_history"); }
  std::string history() const {
    std::ostringstream text;
    text << std::ifstream(history_path()).rdbuf();
    return text.str();
  }
  int mode_of(const std::string& name) const {
    struct stat facts {};
    return stat(path(name).c_str(), &facts) == 0 ? static_cast<int>(facts.st_mode & 0777) : -1;
  }
  // Types each line at the prompt, then Ctrl-D; returns what the terminal showed.
  std::string talk(std::vector<std::string> lines, const std::vector<std::string>& more = {}) const {
    Terminal terminal(arguments(more), environment());
    lines.emplace_back("\x04");
    for (const std::string& line : lines) {
      EXPECT_TRUE(terminal.wait_for_prompt("> ", QKV_HAS_LIBEDIT)) << terminal.shown();
      terminal.type(line);
      EXPECT_TRUE(line == "\x04" || terminal.wait_for("\r\n")) << terminal.shown();
    }
    EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
    return terminal.shown();
  }
};

std::string seed_in(const std::string& shown) {
  std::smatch match;
  return std::regex_search(shown, match, std::regex("seed ([0-9]+) \\(repeat this conversation with -s \\1\\)"))
             ? match[1].str()
             : "";
}

// The lines that are replies.
std::string answers_in(const std::string& shown) {
  std::string answers;
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, std::regex("[a-z]{8}\r"))) answers += line.substr(0, 8) + "\n";
  return answers;
}

TEST_F(ChatTerminal, ShowsModelTemplateContextAndASeedThatRepeatsTheConversation) {
  const std::string shown = talk({"Hello\n", "And then?\n"});
  EXPECT_THAT(shown, HasSubstr(path("model") + ": context 512 tokens, template chatml\r\n"));
  EXPECT_THAT(shown, HasSubstr("/help"));
  EXPECT_THAT(shown, HasSubstr("replies: 2; "));
  const std::string seed = seed_in(shown), answers = answers_in(shown);
  ASSERT_NE(seed, "");
  EXPECT_EQ(answers.size(), 18u) << shown;
  std::vector<std::string> again = arguments({"-s", seed});
  EXPECT_EQ(qkv_test::run_qkv(again, "Hello\nAnd then?\n").out, answers);
  EXPECT_NE(seed_in(talk({})), seed);
  EXPECT_EQ(seed_in(talk({}, {"-s", "5"})), "5");
}

TEST_F(ChatTerminal, SuggestsTheNearestCommandAndContinues) {
  const std::string shown = talk({"/rest\n", "\n", "   \n", "/help\n", "/reset\n", "Hello\n"}, {"--no-history"});
  EXPECT_THAT(shown, HasSubstr("unknown command '/rest'; did you mean /reset? (commands: /reset, /exit, /help;"));
  EXPECT_THAT(shown, HasSubstr("replies: 1; prompt tokens: 24"));
  EXPECT_EQ(mode_of("state"), -1);
}

TEST_F(ChatTerminal, CtrlCStopsAReplyAndExitsAtThePrompt) {
  write_model(4096);
  for (const char* term : {"xterm", "dumb"}) {
    Terminal terminal(arguments({"-n", "-1", "--no-history"}), environment(term));
    const bool edits = QKV_HAS_LIBEDIT && term == std::string("xterm");
    ASSERT_TRUE(terminal.wait_for_prompt("> ", edits)) << terminal.shown();
    terminal.type("Hello\n");
    ASSERT_TRUE(terminal.wait_for("\r\n") && terminal.wait_for("a")) << terminal.shown();
    terminal.type("\x03");
    ASSERT_TRUE(terminal.wait_for_prompt("> ", edits)) << terminal.shown();
    terminal.type("Hel\x03");
    EXPECT_EQ(terminal.finish(), -1 - SIGINT) << terminal.shown();
    EXPECT_TRUE(terminal.echoes());
  }
}

TEST_F(ChatTerminal, ModelOutputCannotControlIt) {
  Terminal terminal({"chat", "-m", path("model"), "-n", "3", "--logit-bias", "27+1000"}, environment());
  ASSERT_TRUE(terminal.wait_for_prompt("> ", QKV_HAS_LIBEDIT));
  terminal.type("Hello\n");
  EXPECT_TRUE(terminal.wait_for("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD")) << terminal.shown();
  EXPECT_TRUE(terminal.wait_for_prompt("> ", QKV_HAS_LIBEDIT));
  terminal.type("\x04");
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_THAT(terminal.shown(), Not(HasSubstr("\x1B\x1B")));
}

// Requires a build with libedit.
class ChatEditing : public ChatTerminal {
 protected:
  void SetUp() override {
    ChatTerminal::SetUp();
    if (!QKV_HAS_LIBEDIT) GTEST_SKIP() << "built without libedit";
  }
};

TEST_F(ChatEditing, EditsUtf8) {
  talk({"h\xC3\xA4\xE2\x86\x92x\x7F\x7F\xE6\xBC\xA2\n",  // hä→x, two characters erased, 漢
        "\xC3\xA9"
        "c\x1B[D\xC3\xB6\x1B[D\x1B[Da\x1B[3~\x05!\n",  // éc, ö in between, a in front, é deleted, ! at the end
        "one two\x17three\x01\tX\n"});
  EXPECT_EQ(history(),
            "h\xC3\xA4\xE6\xBC\xA2\na\xC3\xB6"
            "c!\n\tXone three\n");
}

TEST_F(ChatEditing, RecallsLinesOfThisAndEarlierConversations) {
  talk({"first\n", "second\n"});
  EXPECT_EQ(history(), "first\nsecond\n");
  EXPECT_EQ(mode_of("state/qkv/chat_history"), 0600);
  EXPECT_EQ(mode_of("state/qkv"), 0700);
  const std::string shown = talk({"\x1B[A\x1B[A 2\n", "\x1B[A!\n", "\x1B[A\n"});
  EXPECT_THAT(shown, HasSubstr("replies: 3; "));
  EXPECT_EQ(history(), "first\nsecond\nfirst 2\nfirst 2!\n");  // a repeated line is one entry
}

TEST_F(ChatEditing, TheHistoryIsPrivateAndBounded) {
  std::filesystem::create_directories(path("state/qkv"));
  {
    std::ofstream file(history_path());
    for (int i = 0; i < 1500; ++i) file << "line " << i << "\n";
    file << "broken \xFF\n\x1B[2Jclears\n";
  }
  std::filesystem::permissions(history_path(), std::filesystem::perms(0644));
  const std::string shown = talk({"new\n", "\x1B[A\x1B[A\n"});
  EXPECT_EQ(mode_of("state/qkv/chat_history"), 0600);
  const std::string text = history();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1000);
  EXPECT_THAT(text, testing::StartsWith("line 504\n"));
  EXPECT_THAT(text, testing::EndsWith("clears\nnew\n\x1B[2Jclears\n"));
  EXPECT_THAT(shown, HasSubstr("^[[2Jclears"));  // shown as text, not executed
  EXPECT_THAT(shown, Not(HasSubstr("\x1B[2J")));
  std::ofstream(history_path()) << std::string(1 << 20, 'x') << "\nlast\n";
  talk({std::string(8200, 'y') + "\n"});
  EXPECT_EQ(history(), "last\n");
}

TEST_F(ChatEditing, AnUnusableHistoryIsReportedOnce) {
  std::filesystem::create_directories(history_path());  // a directory in place of the file
  const std::string shown = talk({"one\n", "two\n"});
  EXPECT_THAT(shown, HasSubstr("no history: " + history_path() + ": is not a regular file"));
  EXPECT_THAT(shown, HasSubstr("replies: 2; "));
  EXPECT_EQ(shown.find("no history"), shown.rfind("no history"));
}

}  // namespace
