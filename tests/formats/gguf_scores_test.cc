// SPDX-License-Identifier: Apache-2.0
// Character-level BPE (LLaMA 2, TinyLlama, Mistral) in a GGUF file, where scores replace merges: the same ids, or a
// refusal that gives the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "core/random.h"
#include "formats/character_vocabulary.h"
#include "formats/gguf_scores.h"
#include "qkv/model_file.h"
#include "scratch.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A vocabulary of five characters and `made`, in the order of their scores. Each of `made` is formed from any two
// earlier tokens, as in merges converted from sentencepiece models, with the pairs in id order.
TokenizerData data_of(const std::vector<std::string>& made) {
  TokenizerData data = test::character_vocabulary();
  data.end_token = 2;
  std::map<std::string, std::int32_t> ids;
  const auto add = [&](const std::string& token) {
    std::vector<Merge> merges;
    const auto result = static_cast<std::int32_t>(data.tokens.size());
    for (std::size_t at = 1; at < token.size(); ++at) {
      const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
      if (left != ids.end() && right != ids.end()) merges.push_back({left->second, right->second, result});
    }
    std::sort(merges.begin(), merges.end(),
              [](const Merge& a, const Merge& b) { return a.left != b.left ? a.left < b.left : a.right < b.right; });
    data.merges.insert(data.merges.end(), merges.begin(), merges.end());
    ids.emplace(token, result);
    data.tokens.push_back(token);
  };
  for (const char* character : {" ", "a", "b", "c", "\xC3\xA9"}) add(character);
  for (const std::string& token : made) add(token);
  return data;
}

const std::vector<std::string> kMade = {" a",
                                        "  ",
                                        "ab",
                                        "bc",
                                        "    ",
                                        " ab",
                                        "abc",
                                        "aa",
                                        "aaa",
                                        "\xC3\xA9"
                                        "a",
                                        "c ",
                                        "c a"};

void save(const std::string& path, const TokenizerData& data) {
  ModelConfig c;
  c.n_layer = c.n_head = 1;
  c.d_model = c.d_ff = c.ctx_len = 4;
  c.vocab_size = 300;
  c.norm_gain = c.final_norm = c.tied_head = true;
  c.embedding_norm = false;
  c.activation = Activation::silu;
  c.gated = true;
  c.positions = Positions::rotary;
  save_gguf(path, Model(c), Tokenizer::from_data(data), "f32");
}

TEST(GgufScores, GiveTheSameIdsAsTheMerges) {
  const Scratch scratch;
  for (const bool prefix : {true, false}) {
    TokenizerData data = data_of(kMade);
    data.add_prefix_space = prefix;
    if (prefix) data.before = {1}, data.begin_token = 1;
    save(scratch.path("m.gguf"), data);
    const Tokenizer before = Tokenizer::from_data(data), after = load_model_tokenizer(scratch.path("m.gguf"));
    EXPECT_EQ(after.begin_token(), prefix ? 1 : -1);
    EXPECT_EQ(after.end_token(), 2);
    const char* parts[] = {" ", "a", "b", "c", "\xC3\xA9", "\xFF", "x", "<s>", "\n"};
    for (std::uint64_t n = 0; n < 3000; ++n) {
      const Random random(5, n);
      std::string text;
      for (std::uint64_t i = 0; i < random.below(0, 30); ++i)
        text += parts[random.below(i + 1, n % 3 == 0 ? 9 : n % 3 == 1 ? 5 : 3)];
      ASSERT_EQ(after.encode(text), before.encode(text)) << text;
      ASSERT_EQ(after.encode(text, SpecialTokens::as_ids), before.encode(text, SpecialTokens::as_ids)) << text;
      ASSERT_EQ(after.decode(after.encode(text)), text);
    }
  }
}

// Random vocabularies of two letters, dense enough for every kind of overlap, with the merges of a token in any order.
TEST(GgufScores, GiveTheSameIdsAsTheMergesOfRandomVocabularies) {
  std::int64_t written = 0;
  for (std::uint64_t n = 0; n < 400; ++n) {
    const Random random(7, n);
    std::uint64_t drawn = 0;
    std::vector<std::string> made;
    std::set<std::string> known = {"a", "b"};
    while (made.size() < 8) {
      const auto any = [&] {
        return *std::next(known.begin(), static_cast<std::ptrdiff_t>(random.below(drawn++, known.size())));
      };
      const std::string token = any() + any();
      if (token.size() <= 8 && known.insert(token).second) made.push_back(token);
    }
    TokenizerData data = data_of(made);
    for (std::size_t i = data.merges.size(); i-- > 1;)
      if (const std::size_t k = random.below(drawn++, i + 1); data.merges[k].result == data.merges[i].result)
        std::swap(data.merges[k], data.merges[i]);
    TokenizerData scored = data;
    scored.characters = false;
    try {
      scored.scores = scores_of_merges(data);
    } catch (const std::invalid_argument&) {  // a token that two later ones form as well
      continue;
    }
    ++written;
    const Tokenizer by_merges = Tokenizer::from_data(data), by_score = Tokenizer::from_data(scored);
    for (int i = 0; i < 60; ++i) {
      std::string text;
      while (text.size() < 14) text += random.below(drawn++, 2) ? 'a' : 'b';
      ASSERT_EQ(by_score.encode(text), by_merges.encode(text)) << text;
    }
  }
  EXPECT_GT(written, 100);
}

TEST(GgufScores, MergesThatScoresCannotExpressAreRefused) {
  const Scratch scratch;
  const auto refused = [&](const TokenizerData& data, const char* why) {
    EXPECT_THAT([&] { save(scratch.path("m.gguf"), data); }, ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
  };
  TokenizerData data = data_of(kMade);
  data.merges.pop_back();
  refused(data, "no merge forms 'c a' from 'c ' and 'a'");
  data = data_of({"ab", "bc", "abc", "aa"});
  std::swap(data.merges[3], data.merges[4]);
  refused(data, "the merges of 'abc' are not contiguous");
  refused(data_of({"bb", "a"}), "two tokens are 'a'");
  data = data_of(kMade);
  data.space_prefix = SpacePrefix::first_unless_there;
  refused(data, "a space is prepended only to the first part");
  data = data_of(kMade);
  data.split_spaces = true;
  refused(data, "splits at spaces");
  data = data_of(kMade);
  data.ignore_merges = true;
  refused(data, "ignore_merges");
  data = data_of(kMade);
  data.after = {2};
  refused(data, "none after it");
  data = data_of(kMade);
  data.tokens.push_back(std::string(5000, 'a'));
  refused(data, "longer than 4096 bytes");
  EXPECT_EQ(scratch.entries(), 0);
}

}  // namespace
}  // namespace qkv
