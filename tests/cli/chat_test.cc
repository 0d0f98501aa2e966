// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "generate_command.h"
#include "text/tokenizer_data.h"

namespace {

using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A model of random weights over bytes and ChatML's control tokens.
class ChatCommand : public qkv_test::GenerateCommand {
 protected:
  void SetUp() override {
    GenerateCommand::SetUp();
    write_model(512);
  }

  void write_model(std::int64_t ctx_len) {
    qkv::TokenizerData data = qkv::Tokenizer::bytes().data();
    for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
      qkv::AddedToken token;
      token.id = static_cast<std::int32_t>(data.tokens.size());
      token.content = content;
      token.special = true;
      data.added.push_back(token);
      data.tokens.emplace_back(content);
    }
    const qkv::Tokenizer tokenizer = qkv::Tokenizer::from_data(data);
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.d_model = 32;
    config.vocab_size = tokenizer.size();
    config.ctx_len = ctx_len;
    qkv::Model model(config, 2);
    for (qkv::Tensor& tensor : *model.change_parameters())
      for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] *= 8;
    qkv::save_model(path("model"), model, tokenizer);
    write_template(kTemplate);  // a template of another model does not stay
  }
  void write_template(const std::string& text) const {
    std::ofstream(path("model/tokenizer_config.json")) << nlohmann::json{{"chat_template", text}}.dump();
  }
  Finished chat(const std::string& input, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"chat", "-m", path("model")});
    return run_qkv(more, input);
  }
};

// Answers are lines of letters here: control characters cannot come.
const std::vector<std::string> kLetters = [] {
  std::vector<std::string> options = {"-n", "8", "--temp", "1", "-s", "3"};
  for (int id = 0; id < 259; ++id) {
    if (id >= 'a' && id <= 'z') continue;
    options.insert(options.end(), {"--logit-bias", std::to_string(id) + "-inf"});
  }
  return options;
}();

TEST_F(ChatCommand, AnswersEachLineAndRemembers) {
  const Finished two = chat("Hello\nAnd then?\n", kLetters);
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, testing::MatchesRegex("[a-z]{8}\n[a-z]{8}\n"));
  EXPECT_THAT(two.err, HasSubstr("answers: 2; "));
  const Finished first = chat("Hello\n", kLetters), other = chat("Hullo\nAnd then?", kLetters);
  EXPECT_EQ(two.out.substr(0, 9), first.out);
  EXPECT_NE(two.out.substr(9), other.out.substr(9));  // it remembers what was asked
  // <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n is 24 tokens; what was said is not read again:
  // 1 unread letter, <|im_end|>\n, and 28 tokens of the second question.
  EXPECT_THAT(first.err, HasSubstr("24 tokens read"));
  EXPECT_THAT(two.err, HasSubstr("55 tokens read"));
}

TEST_F(ChatCommand, SaysWhatTheTemplateWouldSay) {
  // One answer = what qkv generate writes after the same tokens; the prompt has no control token of its own there, so
  // the bytes around are compared by their number alone.
  const Finished with = chat("Hello\n", [] {
    std::vector<std::string> options = kLetters;
    options.insert(options.end(), {"--system", "Be brief."});
    return options;
  }());
  EXPECT_THAT(with.err, HasSubstr("43 tokens read"));  // <|im_start|>system\nBe brief.<|im_end|>\n is 19
  EXPECT_NE(with.out, chat("Hello\n", kLetters).out);
  write_template("{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}" + std::string(kTemplate));
  EXPECT_EQ(chat("Hello\n", kLetters).out, with.out);
  write_template(kTemplate);
  // Control tokens that a person spells out are letters: 10 of them.
  EXPECT_THAT(chat("Hello<|im_end|>\n", kLetters).err, HasSubstr("34 tokens read"));
}

TEST_F(ChatCommand, ResetForgetsAndExitEnds) {
  std::vector<std::string> options = kLetters;
  options[3] = "0";  // greedy: no chance between the two
  const Finished finished = chat("Hello\n/reset\nHello\n/exit\nHello\n", options);
  EXPECT_EQ(finished.out.size(), 18u);
  EXPECT_EQ(finished.out.substr(0, 9), finished.out.substr(9));
  EXPECT_THAT(chat("/help\n").out, HasSubstr("/reset"));
  EXPECT_EQ(chat("").status, 0);
  EXPECT_EQ(chat("\n\n/exit\n").out, "");
}

TEST_F(ChatCommand, TheEndTokenEndsAnAnswer) {
  EXPECT_EQ(chat("Hello\nYou\n", {"--logit-bias", "258+1000"}).out, "\n\n");
  EXPECT_EQ(chat("Hello\n", {"--logit-bias", "256+1000"}).out, "\n");
}

TEST_F(ChatCommand, GoesOnPastTheEndOfTheContext) {
  write_model(64);
  std::vector<std::string> options = kLetters;
  options[1] = "150";
  const Finished finished = chat("Hello\nOnce more\n", options);
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, testing::MatchesRegex("[a-z]{150}\n[a-z]{150}\n"));
  EXPECT_EQ(chat("Hello\n", {"--keep", "63"}).status, 2);
  EXPECT_EQ(chat("Hello\n", {"--system", std::string(100, 'x')}).status, 2);
}

TEST_F(ChatCommand, CtrlCStopsTheAnswerAndNotTheProgram) {
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
  EXPECT_THAT(finished.out, testing::ContainsRegex("^[a-z]+\n[a-z]+\n/reset"));
}

TEST_F(ChatCommand, AnUnknownTemplateIsRefusedWithAHint) {
  write_template("{{ '### Instruction: ' + message['content'] }}");
  const Finished unknown = chat("Hello\n");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, testing::MatchesRegex("qkv: [^\n]*### Instruction[^\n]*--template takes chatml, [^\n]*\n"));
  EXPECT_EQ(chat("Hello\n", {"--template", "chatml", "-n", "1"}).status, 0);
  const Finished unfit = chat("Hello\n", {"--template", "llama3"});
  EXPECT_EQ(unfit.status, 1);
  EXPECT_THAT(unfit.err, HasSubstr("expected the token <|eot_id|>"));
  const Finished named = chat("Hello\n", {"--template", "alpaca"});
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.err, HasSubstr("'alpaca'"));
  std::filesystem::remove(path("model/tokenizer_config.json"));
  EXPECT_THAT(chat("Hello\n").err, HasSubstr("has no chat template; --template takes"));
}

TEST_F(ChatCommand, TemplatesAreFoundWhereTheyMayStand) {
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

}  // namespace
