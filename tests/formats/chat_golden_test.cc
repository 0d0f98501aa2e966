// SPDX-License-Identifier: Apache-2.0
// Conversations rendered by `transformers` with each form's template and encoded with tokenizers of several kinds
// (scripts/make_chat_golden.py): the same ids.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "qkv/conversation.h"

namespace qkv {
namespace {

using Ids = std::vector<std::int32_t>;

void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

bool ends_with(const Ids& ids, const Ids& end) {
  return ids.size() >= end.size() && std::equal(end.rbegin(), end.rend(), ids.rbegin());
}

TEST(ChatGolden, ConversationsMatchTheTemplates) {
  std::ifstream in(QKV_SOURCE_DIR "/tests/formats/golden/chat_forms.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  const std::vector<std::string> questions = golden["questions"];
  std::size_t forms = 0;
  std::string last;
  for (const nlohmann::json& one : golden["cases"]) {
    const std::string form = one["form"], name = one["tokenizer"], system = one["system"];
    SCOPED_TRACE(form + " with " + name + (system.empty() ? "" : ", system message"));
    forms += form != last;
    last = form;
    const auto recognised = recognise_chat_form(one["template"].get<std::string>());
    ASSERT_TRUE(recognised);
    ASSERT_EQ(chat_form_name(*recognised), form);
    ChatTemplate chat(*recognised, Tokenizer::from_json(name, golden["tokenizers"][name].dump()));
    const std::vector<Ids> wanted = one["ids"];
    Ids first = chat.beginning(system);
    append(first, chat.question(questions[0], true, system));
    EXPECT_EQ(first, wanted[0]) << one["text"];
    if (wanted.size() == 1) continue;
    Ids next = chat.answer_end();  // the model generates what is in between
    append(next, chat.question(questions[1], false, system));
    EXPECT_TRUE(ends_with(wanted[1], next))
        << one["text"] << testing::PrintToString(next) << " at the end of " << testing::PrintToString(wanted[1]);
    Conversation conversation(std::move(chat));
    const std::vector<ChatMessage> said = {
        {"system", system}, {"user", questions[0]}, {"assistant", golden["answer"]}, {"user", questions[1]}};
    conversation.assign(std::span(said).subspan(system.empty() ? 1 : 0));
    EXPECT_EQ(conversation.tokens(), wanted[1]) << one["text"];
  }
  EXPECT_EQ(forms, 9u);
}

}  // namespace
}  // namespace qkv
