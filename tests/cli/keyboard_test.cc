// SPDX-License-Identifier: Apache-2.0
// A prompt typed at a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "generate_command.h"
#include "terminal.h"

namespace {

using qkv_test::Terminal;
using testing::HasSubstr;
using testing::Not;

class Keyboard : public qkv_test::GenerateCommand {
 protected:
  void SetUp() override {
    GenerateCommand::SetUp();
    if (const std::string reason = qkv_test::no_terminals(); !reason.empty()) GTEST_SKIP() << reason;
  }
  // The output of generate after `keys` are typed at its prompt.
  std::string typed(const std::string& keys) const {
    Terminal terminal({"generate", "-m", path("model"), "-n", "3"});
    EXPECT_TRUE(terminal.wait_for("reading the prompt from the keyboard; end with Ctrl-D")) << terminal.shown();
    terminal.type(keys);
    EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
    return terminal.shown();
  }
};

TEST_F(Keyboard, OneCtrlDEndsThePrompt) {
  EXPECT_THAT(typed("ab\ncd\n\x04"), HasSubstr("prompt: 6 tokens"));
  EXPECT_THAT(typed("ab\ncd\x04"), HasSubstr("prompt: 5 tokens"));  // in the middle of a line too
  EXPECT_THAT(typed("\x04"), HasSubstr("prompt: 1 token in "));     // nothing typed: only the token that starts a text
}

TEST_F(Keyboard, OtherInputsAreReadSilently) {
  EXPECT_THAT(generate({"-n", "3"}, "ab").err, Not(HasSubstr("keyboard")));
  std::ofstream(path("prompt.txt")) << "ab";
  for (const char* option : {"-p", "-f"}) {
    Terminal terminal({"generate", "-m", path("model"), "-n", "3", option, path("prompt.txt")});
    EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
    EXPECT_THAT(terminal.shown(), Not(HasSubstr("keyboard")));
  }
}

}  // namespace
