// SPDX-License-Identifier: Apache-2.0
// A BPE tokenizer trained by qkv gives the same ids in Hugging Face's `tokenizers`: scripts/make_bpe_golden.py loaded
// it there and stored the ids.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "qkv/tokenizer.h"

namespace qkv {
namespace {

std::string golden(const std::string& name) {
  std::ifstream file(QKV_SOURCE_DIR "/tests/formats/golden/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class BpeGolden : public testing::Test {
 protected:
  const nlohmann::json found_ = nlohmann::json::parse(golden("bpe_ids.json"));
  const std::string text_ = golden("bpe_text.txt");
};

TEST_F(BpeGolden, TrainingGivesTheGoldenFile) {
  const Tokenizer tokenizer = Tokenizer::train_bpe(text_, found_["size"].get<std::int64_t>(), {});
  ASSERT_EQ(tokenizer.size(), found_["size"].get<std::int64_t>());
  EXPECT_EQ(tokenizer.json(), golden("bpe_tokenizer.json"));
}

TEST_F(BpeGolden, GivesTheSameIds) {
  const Tokenizer tokenizer = Tokenizer::load(QKV_SOURCE_DIR "/tests/formats/golden/bpe_tokenizer.json");
  EXPECT_EQ(tokenizer.encode(text_), found_["text"].get<std::vector<std::int32_t>>());
  for (const auto& probe : found_["probes"]) {
    const auto text = probe["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), probe["ids"].get<std::vector<std::int32_t>>()) << text;
  }
}

}  // namespace
}  // namespace qkv
