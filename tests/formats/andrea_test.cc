// SPDX-License-Identifier: Apache-2.0
#include "qkv/andrea.h"

#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/scratch.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "text/harris_trainer.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig tiny(std::int64_t vocab_size) {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 1;
  config.d_model = 2;
  config.d_ff = 3;
  config.ctx_len = 4;
  config.vocab_size = vocab_size;
  return config;
}

AndreaLayout tiny_layout() {
  AndreaLayout layout;
  layout.config = tiny(0);
  return layout;
}

// The bytes of a checkpoint in which element k is k.
std::string counting(std::int32_t step, std::int32_t n_params) {
  std::string bytes(8 + 12 * static_cast<std::size_t>(n_params), '\0');
  std::memcpy(bytes.data(), &step, 4);
  std::memcpy(bytes.data() + 4, &n_params, 4);
  for (std::int32_t k = 0; k < 3 * n_params; ++k) {
    const auto value = static_cast<float>(k);
    std::memcpy(bytes.data() + 8 + 4 * k, &value, 4);
  }
  return bytes;
}

std::string error_of(const std::string& path, const std::optional<AndreaLayout>& layout) {
  try {
    load_andrea(path, layout);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

constexpr std::int32_t kCount = 2 * 259 * 2 + 4 * 2 + 2 * (4 * 4 + 2 * 6);  // 2 segments: wte, lm_head, wpe, layers

class Andrea : public testing::Test {
 protected:
  Andrea() {
    scratch_.file("harris_segments.json", R"(["the", "ing"])");
    scratch_.file("c.bin", counting(7, kCount));
  }
  Scratch scratch_;
  std::string path_ = scratch_.path("c.bin");
};

// wte [259, 2] and wpe [4, 2] unchanged, lm_head [259, 2] transposed, then wq of layer 0 at 518 + 8 + 518 = 1044.
TEST_F(Andrea, ElementsFollowTheOrder) {
  const AndreaCheckpoint c = load_andrea(path_, tiny_layout());
  EXPECT_EQ(c.step, 7);
  EXPECT_EQ(c.model.config().vocab_size, 259);
  const auto at = [&](const std::vector<Tensor>& tensors, const std::string& name, std::int64_t i) {
    for (std::size_t k = 0; k < tensors.size(); ++k)
      if (c.model.infos()[k].name == name) return tensors[k].data()[i];
    return -1.0f;
  };
  const auto& p = c.model.parameters();
  EXPECT_EQ(at(p, "token_embedding", 3), 3);
  EXPECT_EQ(at(p, "position_embedding", 1), 519);
  EXPECT_EQ(at(p, "head", 1), 526 + 2);          // ours [2, 259]: row 0, column 1; theirs [259, 2]: row 1, column 0
  EXPECT_EQ(at(p, "layers.0.wq", 1), 1044 + 2);  // transposed
  EXPECT_EQ(at(p, "layers.0.w_up", 1), 1044 + 16 + 2);
  EXPECT_EQ(at(p, "layers.1.wq", 0), 1044 + 28);
  EXPECT_EQ(at(c.first_moments, "layers.0.wq", 1), kCount + 1046);
  EXPECT_EQ(at(c.second_moments, "token_embedding", 0), 2 * kCount);
  EXPECT_THAT(c.tokenizer.encode("thing"), ElementsAre(2 + 't', 2 + 'h', 1));
  EXPECT_EQ(c.tokenizer.end_token(), 258);

  AndreaLayout other = tiny_layout();
  other.order = "wpe, wq,wk,wv,wo,fc1,fc2, wte,lm_head";
  other.out_in = false;
  other.bytes_first = true;
  const AndreaCheckpoint d = load_andrea(path_, other);
  EXPECT_EQ(d.model.parameters()[1].data()[0], 0);  // position_embedding
  EXPECT_EQ(d.model.parameters()[2].data()[1], 8 + 1);
  EXPECT_EQ(d.model.parameters()[0].data()[0], 8 + 56);
  EXPECT_THAT(d.tokenizer.encode("thing"), ElementsAre('t', 'h', 257));
}

TEST_F(Andrea, WrittenByteForByteAndReadBackWithoutOptions) {
  for (const bool other : {false, true}) {
    AndreaLayout layout = tiny_layout();
    if (other) layout.order = "wq,wk,wv,wo,fc1,fc2,wte,wpe,lm_head";
    layout.out_in = !other;
    layout.bytes_first = other;
    const AndreaCheckpoint c = load_andrea(path_, layout);
    std::filesystem::create_directory(scratch_.path("w"));
    save_andrea(scratch_.path("w/c.bin"), c);
    EXPECT_EQ(read_all(scratch_.path("w/c.bin")), counting(7, kCount));
    EXPECT_EQ(json::parse(read_all(scratch_.path("w/harris_segments.json"))), json({"the", "ing"}));
    EXPECT_EQ(error_of(scratch_.path("w/c.bin"), {}), "no error");
    const LoadedModel loaded = load_model(scratch_.path("w/c.bin"));
    EXPECT_EQ(std::memcmp(loaded.model.parameters()[3].raw(), c.model.parameters()[3].raw(), 16), 0);
    EXPECT_THAT(loaded.end_tokens, ElementsAre(258));
    const ModelFacts facts = inspect_model(scratch_.path("w/c.bin"));
    EXPECT_EQ(facts.format, "ANDREA checkpoint");
    EXPECT_EQ(facts.notes[1].second, layout.order);
    EXPECT_EQ(facts.notes[2].second, other ? "[in, out]" : "[out, in]");
    EXPECT_THAT(verify_path(scratch_.path("w/c.bin")), HasSubstr("ANDREA checkpoint model: 1100 parameters"));
  }
}

TEST_F(Andrea, BothParameterCountsAreNamedIfTheyDiffer) {
  AndreaLayout larger = tiny_layout();
  larger.config.d_ff = 5;
  EXPECT_THAT(error_of(path_, larger), HasSubstr("contains 1100 parameters; the configuration has 1116"));
  EXPECT_THAT(error_of(path_, {}), HasSubstr("contains 1100 parameters; with 2 segments the presets have andrea-12m "));
  EXPECT_THAT(error_of(path_, {}), HasSubstr("at byte 4"));
  larger.config.n_layer = 1101;
  EXPECT_THAT(error_of(path_, larger), HasSubstr("contains 1100 parameters, too few for the 1101 layers"));
  scratch_.file("harris_segments.json", R"(["the"])");
  EXPECT_THAT(error_of(path_, tiny_layout()), HasSubstr("contains 1100 parameters; the configuration has 1096"));
}

TEST_F(Andrea, InvalidFilesAreRefused) {
  const std::string whole = counting(7, kCount);
  const auto with = [&](const std::string& bytes) {
    scratch_.file("c.bin", bytes);
    return error_of(path_, tiny_layout());
  };
  EXPECT_THAT(with(whole.substr(0, 7)), HasSubstr("inside its header"));
  EXPECT_THAT(with(whole.substr(0, whole.size() - 1)), HasSubstr("need 13208 bytes; the file has 13207"));
  EXPECT_THAT(with(whole + "x"), HasSubstr("the file has 13209"));
  std::string negative = whole;
  negative[7] = '\x80';
  EXPECT_THAT(with(negative), HasSubstr("n_params must be above 0"));
  std::string many = whole;
  many[7] = '\x7f';
  EXPECT_THAT(with(many), HasSubstr("the file has"));
  negative = whole;
  negative[3] = '\x80';
  EXPECT_THAT(with(negative), HasSubstr("step must not be negative"));
  EXPECT_EQ(with(whole), "no error");
  AndreaLayout layout = tiny_layout();
  for (const char* order : {"wte,wpe,lm_head,wq,wk,wv,wo,fc1", "wte,wte,wpe,lm_head,wq,wk,wv,wo,fc1,fc2", "", "x"}) {
    layout.order = order;
    EXPECT_THAT(error_of(path_, layout), HasSubstr("order expected each parameter of the configuration once")) << order;
  }
  layout.order = "wte,wpe,extra";
  EXPECT_THAT(error_of(path_, layout), HasSubstr("'extra', which is not a parameter of the model or its layers"));
  const auto with_segments = [&](const std::string& text) {
    scratch_.file("harris_segments.json", text);
    return error_of(path_, tiny_layout());
  };
  EXPECT_EQ(with_segments(R"({"version": 1, "segments": ["a", "ing"]})"), "no error");
  EXPECT_THAT(with_segments(R"({"a": [], "b": []})"), HasSubstr("expected one list"));
  EXPECT_THAT(with_segments("{}"), HasSubstr("found none"));
  EXPECT_THAT(with_segments("3"), HasSubstr("expected a list"));
  EXPECT_THAT(with_segments(R"(["a", 3])"), HasSubstr("expected a string"));
  EXPECT_THAT(with_segments(R"(["a", ""])"), HasSubstr("empty segment"));
  EXPECT_THAT(with_segments(R"(["ab", "ab"])"), HasSubstr("twice"));
  std::filesystem::remove(scratch_.path("harris_segments.json"));
  EXPECT_THAT(error_of(path_, tiny_layout()), HasSubstr("harris_segments.json: cannot be opened"));
}

TEST_F(Andrea, MomentsAreSavedWithADirectory) {
  const AndreaCheckpoint c = load_andrea(path_, tiny_layout());
  save_model(scratch_.path("m"), c.model, c.tokenizer);
  EXPECT_FALSE(load_adam_state(scratch_.path("m"), c.model));
  save_adam_state(scratch_.path("m"), c.model, {c.step, c.first_moments, c.second_moments});
  const LoadedModel loaded = load_model(scratch_.path("m"));
  const std::optional<AdamState> state = load_adam_state(scratch_.path("m"), loaded.model);
  ASSERT_TRUE(state);
  std::filesystem::create_directory(scratch_.path("w"));
  save_andrea(scratch_.path("w/c.bin"), loaded.model, loaded.tokenizer, {}, state->step, state->first_moments,
              state->second_moments);
  EXPECT_EQ(read_all(scratch_.path("w/c.bin")), counting(7, kCount));
  EXPECT_THROW(save_andrea(scratch_.path("w/c.bin"), loaded.model, Tokenizer::bytes(), {}, 0, {}, {}),
               std::invalid_argument);
}

TEST(AndreaPresets, TheSmallOneHasTheSizeOfItsCheckpoint) {
  EXPECT_EQ(8 + 12 * parameter_count(preset("andrea-12m")), 153363464);
}

}  // namespace
}  // namespace qkv
