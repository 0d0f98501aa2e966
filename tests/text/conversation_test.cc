// SPDX-License-Identifier: Apache-2.0
#include "qkv/conversation.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "text/tokenizer_data.h"

namespace {

using qkv::ChatMessage;
using qkv::Conversation;
using Ids = std::vector<std::int32_t>;

const qkv::Tokenizer& tokenizer() {
  static const qkv::Tokenizer made = [] {
    qkv::TokenizerData data = qkv::Tokenizer::bytes().data();
    for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
      qkv::AddedToken token;
      token.id = static_cast<std::int32_t>(data.tokens.size());
      token.content = content;
      token.special = true;
      data.added.push_back(token);
      data.tokens.emplace_back(content);
    }
    return qkv::Tokenizer::from_data(data);
  }();
  return made;
}
Conversation chatml(const std::string& system = "") {
  return Conversation(qkv::ChatTemplate(qkv::ChatForm::chatml, tokenizer()), system);
}
std::string text_of(const Conversation& conversation) { return tokenizer().decode(conversation.tokens()); }

TEST(Conversation, EachPromptBeginsWithTheOneBefore) {
  Conversation conversation = chatml("Be brief.");
  conversation.ask("One?");
  Ids before = conversation.tokens();
  EXPECT_EQ(text_of(conversation),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n");
  Ids context = before;
  context.insert(context.end(), {'1', '!'});
  conversation.answered(context);
  conversation.ask("Two?");
  EXPECT_EQ(text_of(conversation),
            tokenizer().decode(before) + "1!<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n");
  Conversation same = chatml("Be brief.");
  same.ask("One?");
  same.answer("1!");
  same.ask("Two?");
  EXPECT_EQ(same.tokens(), conversation.tokens());
  conversation.reset();
  conversation.ask("One?");
  EXPECT_EQ(conversation.tokens(), before);
  EXPECT_EQ(conversation.end_tokens(), Ids{258});
}

TEST(Conversation, ExternalMessagesGiveTheSameTokens) {
  Conversation asked = chatml("Be brief."), given = chatml("Be brief."), other = chatml("Be long.");
  asked.ask("One?");
  asked.answer("1!<|im_end|>");  // plain text, in an answer as well
  asked.ask("Two?");
  const std::vector<ChatMessage> said = {
      {"system", "Be brief."}, {"user", "One?"}, {"assistant", "1!<|im_end|>"}, {"user", "Two?"}};
  given.assign(std::span(said).subspan(1));
  EXPECT_EQ(given.tokens(), asked.tokens());
  other.assign(said);
  EXPECT_EQ(other.tokens(), asked.tokens());
  other.reset();
  other.ask("One?");
  EXPECT_NE(text_of(other).find("Be long."), std::string::npos);
}

TEST(Conversation, RefusesMessagesInAnotherOrder) {
  Conversation conversation = chatml();
  const std::vector<std::vector<ChatMessage>> all = {
      {},
      {{"system", "x"}},
      {{"assistant", "x"}},
      {{"user", "x"}, {"user", "y"}},
      {{"user", "x"}, {"assistant", "y"}},
      {{"user", "x"}, {"system", "y"}, {"user", "z"}},
      {{"tool", "x"}},
  };
  for (const std::vector<ChatMessage>& messages : all)
    EXPECT_THROW(conversation.assign(messages), std::invalid_argument);
}

}  // namespace
