// SPDX-License-Identifier: Apache-2.0
#include "qkv/model_file.h"

#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "formats/safetensors.h"
#include "formats/scratch.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ModelConfig small_config() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.head_dim = 6;
  config.v_head_dim = 5;
  config.d_model = 12;
  config.d_ff = 20;
  config.vocab_size = 260;
  config.ctx_len = 16;
  config.norm = Norm::layernorm;
  config.norm_gain = config.norm_bias = config.final_norm = true;
  config.norm_eps = 3e-6;
  config.embedding_norm = false;
  config.activation = Activation::silu;
  config.gated = true;
  config.positions = Positions::rotary;
  config.rope_theta = 12345.678;
  config.rope_scaling = {8, 1, 4, 8192, {1, 1.5, 3}};
  config.qkv_bias = config.output_bias = config.tied_head = true;
  return config;
}

void expect_same_parameters(const Model& got, const Model& wanted) {
  ASSERT_EQ(got.infos().size(), wanted.infos().size());
  ASSERT_EQ(got.dtype(), wanted.dtype());
  for (std::size_t i = 0; i < wanted.infos().size(); ++i) {
    const Tensor &a = got.parameters()[i], &b = wanted.parameters()[i];
    EXPECT_EQ(got.infos()[i].name, wanted.infos()[i].name);
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << wanted.infos()[i].name;
  }
}

std::string error_of(const std::string& directory) {
  try {
    load_model(directory);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelFile, SaveAndLoadRoundTrips) {
  const Scratch scratch;
  ModelConfig andrea = ModelConfig();
  andrea.n_layer = 1;
  andrea.d_model = 24;
  andrea.vocab_size = 257;
  for (const ModelConfig& config : {small_config(), andrea})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Model model(config, 42, dtype);
      save_model(scratch.path("a/b"), model, Tokenizer::bytes());
      const LoadedModel loaded = load_model(scratch.path("a/b"));
      EXPECT_EQ(loaded.model.config(), config.resolved());
      expect_same_parameters(loaded.model, model);
      EXPECT_EQ(loaded.tokenizer.size(), 257);
      EXPECT_EQ(load_config(scratch.path("a/b/config.json")), config.resolved());
    }
}

TEST(ModelFile, WritesTheDocumentedDirectory) {
  const Scratch scratch;
  const Model model(small_config(), 1);
  save_model(scratch.path("m"), model, Tokenizer::bytes());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("m")))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  const json config = json::parse(read_all(scratch.path("m/config.json")));
  EXPECT_EQ(config.size(), 40u);
  EXPECT_EQ(config["rope_scaling"]["frequency_factors"], json({1, 1.5, 3}));
  EXPECT_EQ(config["qkv_format"], 2);
  EXPECT_EQ(config["model_type"], "qkv");
  EXPECT_EQ(config["n_kv_head"], 2);
  EXPECT_EQ(config["norm"], "layernorm");
  EXPECT_EQ(config["activation"], "silu");
  EXPECT_EQ(config["gated"], true);
  EXPECT_EQ(config["positions"], "rotary");
  EXPECT_EQ(config["norm_eps"], 3e-6);
  EXPECT_EQ(config["rope_theta"], 12345.678);
  EXPECT_EQ(config["tied_head"], true);
  const SafetensorsFile weights(scratch.path("m/model.safetensors"));
  EXPECT_EQ(weights.tensors().size(), model.infos().size());
  EXPECT_EQ(weights.metadata().at("qkv_format"), "1");
}

class SavedModel : public testing::Test {
 protected:
  SavedModel() : model_(small_config(), 5) {
    save_model(folder_, model_, Tokenizer::bytes());
    config_ = json::parse(read_all(folder_ + "/config.json"));
  }
  std::string with_config(const char* key, const json& value) {
    json changed = config_;
    changed[key] = value;
    scratch_.file("m/config.json", changed.dump());
    return error_of(folder_);
  }
  // Changes the model's parameters and writes them.
  template <class Change>
  std::string with_weights(Change change) {
    std::vector<NamedView> tensors;
    for (std::size_t i = 0; i < model_.infos().size(); ++i)
      tensors.push_back({model_.infos()[i].name, model_.parameters()[i].view()});
    change(tensors);
    write_safetensors(folder_ + "/model.safetensors", tensors);
    return error_of(folder_);
  }

  Scratch scratch_;
  std::string folder_ = scratch_.path("m");
  Model model_;
  json config_;
};

TEST_F(SavedModel, RefusesOtherConfigurations) {
  EXPECT_THAT(with_config("qkv_format", 3), HasSubstr("expected version 1 to 2; found 3"));
  EXPECT_THAT(with_config("model_type", "opt"),
              HasSubstr("expected one of qkv, gpt2, qwen3, qwen2 and llama; found 'opt'"));
  EXPECT_THAT(with_config("model_type", "gpt2"), HasSubstr("has no 'n_embd'"));
  EXPECT_THAT(with_config("dropout", 0.1), HasSubstr("unknown key 'dropout'"));
  EXPECT_THAT(with_config("norm", "batchnorm"), HasSubstr("rmsnorm, layernorm; found 'batchnorm'"));
  EXPECT_THAT(with_config("n_head", 4.0), HasSubstr("whole number"));
  EXPECT_THAT(with_config("n_head", -4), HasSubstr("whole number"));
  EXPECT_THAT(with_config("n_head", 3), HasSubstr("multiple of n_kv_head"));
  EXPECT_THAT(with_config("norm_eps", "1e-5"), HasSubstr("expected a number"));
  EXPECT_THAT(with_config("tied_head", 1), HasSubstr("true or false"));
  EXPECT_THAT(with_config("n_layer", 1099511627776), HasSubstr("n_layer"));
  // Sizes that no machine has memory for are detected before allocating.
  EXPECT_THAT(with_config("n_layer", 60000), HasSubstr("too few"));
  EXPECT_THAT(with_config("d_model", 2147483640), HasSubstr("model.safetensors"));
  EXPECT_THAT(with_config("vocab_size", 2147483640), HasSubstr("model.safetensors"));
  EXPECT_THAT(with_config("vocab_size", 256), HasSubstr("expected [256, 12]"));
  Tokenizer::train_bpe("ababab abcabc abcd abcd", 262, {}).save(folder_ + "/tokenizer.json");
  scratch_.file("m/config.json", config_.dump());
  EXPECT_THAT(error_of(folder_), HasSubstr("at most vocab_size = 260 tokens; found 26"));
  Tokenizer::bytes().save(folder_ + "/tokenizer.json");
  json huge = config_;
  huge["d_model"] = huge["d_ff"] = 2147483640;
  huge["vocab_size"] = 2147483640;
  scratch_.file("m/config.json", huge.dump());
  EXPECT_NE(error_of(folder_), "no error");
  huge["d_ff"] = 8589934588;  // d_model * d_ff is past 64 bits
  scratch_.file("m/config.json", huge.dump());
  EXPECT_THAT(error_of(folder_), HasSubstr("config.json: [shape] too many elements"));
  json missing = config_;
  missing.erase("n_kv_head");
  scratch_.file("m/config.json", missing.dump());
  EXPECT_THAT(error_of(folder_), HasSubstr("has no 'n_kv_head'"));
}

TEST_F(SavedModel, RefusesOtherWeights) {
  EXPECT_EQ(with_weights([](auto&) {}), "no error");
  const std::string first = model_.infos()[0].name;
  EXPECT_THAT(with_weights([](auto& t) { t.erase(t.begin()); }), HasSubstr("'" + first + "': is missing"));
  EXPECT_THAT(with_weights([](auto& t) { t.push_back({"more", t[0].view}); }), HasSubstr("'more': is not a parameter"));
  const Tensor wide(model_.infos()[0].shape, DType::i32), other({3, 3});
  EXPECT_THAT(with_weights([&](auto& t) { t[0].view = wide; }), HasSubstr("expected"));
  EXPECT_THAT(with_weights([&](auto& t) { t[0].view = other; }), HasSubstr("found [3, 3]"));
}

TEST_F(SavedModel, NamesTheFileThatIsMissing) {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    save_model(folder_, model_, Tokenizer::bytes());
    std::filesystem::remove(folder_ + "/" + name);
    const std::string expected = name == std::string("config.json")
                                     ? ": expected a model directory with config.json; "
                                       "found a directory without it"
                                     : name + std::string(": cannot be opened: No such file");
    EXPECT_THAT(error_of(folder_), HasSubstr(expected));
  }
  EXPECT_THAT(error_of(scratch_.path("none")), HasSubstr("none: cannot be opened: No such file"));
}

TEST_F(SavedModel, SurvivesTruncationsAndBitFlips) {
  const Random random(9);
  std::uint64_t draw = 0;
  for (const std::string name : {"m/config.json", "m/model.safetensors", "m/tokenizer.json"}) {
    const std::string whole = read_all(scratch_.path(name));
    for (int round = 0; round < 60; ++round) {
      scratch_.file(name, whole.substr(0, random.below(draw++, whole.size() - 2)));
      EXPECT_NE(error_of(folder_), "no error");
      std::string bytes = whole;
      const std::size_t at = random.below(draw++, std::min<std::size_t>(bytes.size(), 2000));
      bytes[at] = static_cast<char>(random.below(draw++, 256));
      scratch_.file(name, bytes);
      error_of(folder_);  // throws only FileError
    }
    scratch_.file(name, whole);
  }
  EXPECT_EQ(error_of(folder_), "no error");
}

TEST(ModelFile, RefusesToSaveUnloadableModels) {
  const Scratch scratch;
  ModelConfig config = small_config();
  config.vocab_size = 256;
  EXPECT_THROW(save_model(scratch.path("m"), Model(config), Tokenizer::bytes()), std::invalid_argument);
  EXPECT_THROW(save_model("/dev/null/m", Model(small_config()), Tokenizer::bytes()), FileError);
  EXPECT_EQ(scratch.entries(), 0);
}

}  // namespace
}  // namespace qkv
