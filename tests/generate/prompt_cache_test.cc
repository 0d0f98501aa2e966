// SPDX-License-Identifier: Apache-2.0
#include "qkv/prompt_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "qkv/engine.h"
#include "qkv/error.h"

namespace {

using Ids = std::vector<std::int32_t>;

qkv::Model tiny_model(std::uint64_t seed = 1, std::int64_t ctx_len = 24) {
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_kv_head = 1;
  config.head_dim = 6;
  config.d_model = 10;
  config.vocab_size = 19;
  config.ctx_len = ctx_len;
  config.positions = qkv::Positions::rotary;
  return qkv::Model(config, seed);
}

class PromptCache : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(testing::TempDir()) / ("qkv_prompt_" + std::to_string(getpid()))).string();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  // Writes the bytes with a valid checksum.
  void write_with_checksum(std::string bytes) const {
    const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size() - 8);
    std::memcpy(bytes.data() + bytes.size() - 8, &checksum, 8);
    write(bytes);
  }
  void save(qkv::Model& model, const Ids& tokens) const {
    qkv::TextContext context;
    qkv::prefill(model, tokens, context);
    qkv::save_prompt_cache(path_, model, context);
  }
  void expect_refused(qkv::Model& model, const std::string& why) const {
    qkv::TextContext context;
    context.tokens = {7};
    try {
      qkv::load_prompt_cache(path_, model, context);
      ADD_FAILURE() << "taken: " << why;
    } catch (const qkv::FileError& error) {
      EXPECT_EQ(error.path(), path_);
    }
    EXPECT_EQ(context.tokens, Ids{7}) << why;
    EXPECT_EQ(context.state.size(), 0) << why;
  }

  std::string path_;
};

qkv::GenerateOptions drawing() {
  qkv::GenerateOptions options;
  options.sampler = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = 2};
  options.max_tokens = 8;
  return options;
}

qkv::GenerateResult generate_after(qkv::Model& model, qkv::TextContext context, const Ids& prompt,
                                   std::optional<qkv::DType> type = std::nullopt) {
  qkv::Engine engine(model, {.prefix_bytes = 1 << 20, .cache_type = type});
  engine.add_prefix(std::move(context));
  qkv::GenerateResult result;
  engine.submit(prompt, drawing(), [&](const qkv::EngineEvent& event) {
    if (event.result != nullptr) result = *event.result;
    return true;
  });
  while (engine.step()) {
  }
  return result;
}

TEST_F(PromptCache, GivesTheSameTextWithoutReevaluation) {
  qkv::Model model = tiny_model();
  save(model, {1, 2, 3, 4, 5, 6});
  const Ids prompts[] = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 9}, {9, 1}, {1, 2}};
  const std::int64_t read[] = {1, 2, 1, 2, 1};
  for (std::size_t i = 0; i < std::size(prompts); ++i) {
    qkv::TextContext context;
    qkv::load_prompt_cache(path_, model, context);
    EXPECT_EQ(context.tokens, (Ids{1, 2, 3, 4, 5, 6}));
    const qkv::GenerateResult result = generate_after(model, std::move(context), prompts[i]);
    EXPECT_EQ(result.tokens, qkv::generate(model, prompts[i], drawing()).tokens) << i;
    EXPECT_EQ(result.prompt_evaluated, read[i]) << i;
  }
}

TEST_F(PromptCache, IsRefusedByOtherModels) {
  qkv::Model model = tiny_model();
  save(model, {1, 2, 3});
  qkv::Model other = tiny_model(2), longer = tiny_model(1, 25);
  expect_refused(other, "other weights");
  qkv::Model nearly = tiny_model();
  nearly.change_parameters()->back().data()[3] += 1e-3F;
  expect_refused(nearly, "one number differs");
  qkv::TextContext context;
  EXPECT_NO_THROW(qkv::load_prompt_cache(path_, longer, context));  // the same weights with a longer context
  qkv::Model shorter = tiny_model(1, 2);
  expect_refused(shorter, "context shorter than the cache");
}

TEST_F(PromptCache, IsRefusedForOtherDTypes) {
  qkv::Model model = tiny_model();
  for (const qkv::DType type : {qkv::DType::f32, qkv::DType::bf16, qkv::DType::f16, qkv::DType::q8_0}) {
    qkv::TextContext context;
    qkv::prefill(model, Ids{1, 2, 3, 4}, context, type);
    qkv::save_prompt_cache(path_, model, context);
    for (const qkv::DType other : {qkv::DType::f32, qkv::DType::bf16, qkv::DType::f16, qkv::DType::q8_0}) {
      qkv::TextContext into;
      into.state = model.make_state(other);
      if (other != type) {
        EXPECT_THROW(qkv::load_prompt_cache(path_, model, into), qkv::FileError);
        continue;
      }
      qkv::load_prompt_cache(path_, model, into);
      const qkv::GenerateResult result = generate_after(model, std::move(into), {1, 2, 3, 4, 5}, type);
      EXPECT_EQ(result.tokens, generate_after(model, {{}, model.make_state(type)}, {1, 2, 3, 4, 5}, type).tokens);
      EXPECT_EQ(result.prompt_evaluated, 1);
    }
  }
}

TEST_F(PromptCache, EveryDamagedByteAndEveryTruncationIsRefused) {
  qkv::Model model = tiny_model();
  save(model, {1, 2, 3});
  const std::string good = bytes();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    write(bad);
    expect_refused(model, "byte " + std::to_string(i));
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(good.substr(0, size));
    expect_refused(model, "cut to " + std::to_string(size));
  }
  write(good + '\0');
  expect_refused(model, "a byte too many");
  std::filesystem::remove(path_);
  expect_refused(model, "missing");
}

// Anyone who can compute a checksum can write any header.
TEST_F(PromptCache, InconsistentHeadersAreRefusedDespiteAValidChecksum) {
  qkv::Model model = tiny_model();
  save(model, {1, 2, 3});
  const std::string good = bytes();
  write_with_checksum(good);
  qkv::TextContext context;
  EXPECT_NO_THROW(qkv::load_prompt_cache(path_, model, context));
  const std::uint64_t extremes[] = {0, 1, 2, 4, 25, 1u << 20, UINT64_MAX, UINT64_MAX / 4 + 1, UINT64_MAX - 3};
  // Magic, version, fingerprint, tokens, bytes of state, the tokens, and the state's own header without its reserved
  // part.
  for (std::size_t at = 0; at + 8 <= 40 + 12 + 40; at += 4) {
    for (const std::uint64_t value : extremes) {
      for (const std::size_t width : {4, 8}) {
        std::string bad = good;
        std::memcpy(bad.data() + at, &value, width);
        std::string with_tokens = good;  // other tokens are valid too, if they are in the vocabulary
        with_tokens.replace(40, 12, bad, 40, 12);
        std::int32_t tokens[3];
        std::memcpy(tokens, bad.data() + 40, 12);
        const auto is_token = [](std::int32_t id) { return id >= 0 && id < 19; };
        if (bad == with_tokens && std::all_of(tokens, tokens + 3, is_token)) continue;
        write_with_checksum(bad);
        expect_refused(model, std::to_string(value) + " at " + std::to_string(at));
      }
    }
  }
}

TEST(TextContext, PrefillRefusesInvalidTokens) {
  qkv::Model model = tiny_model();
  qkv::TextContext context;
  EXPECT_THROW(qkv::prefill(model, Ids{}, context), std::invalid_argument);
  EXPECT_THROW(qkv::prefill(model, Ids(25, 1), context), std::invalid_argument);
  EXPECT_THROW(qkv::prefill(model, Ids{19}, context), std::invalid_argument);
}

}  // namespace
