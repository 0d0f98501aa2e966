// SPDX-License-Identifier: Apache-2.0
// Adapters as PEFT names and stores them, and invalid ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "formats/scratch.h"
#include "model/tiny_models.h"
#include "qkv/error.h"
#include "qkv/lora.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> names(const LoraAdapters& adapters) {
  std::vector<std::string> all;
  for (const LoraModule& module : adapters.modules) all.push_back(module.name);
  return all;
}

TEST(LoraFile, ModulesHavePeftNames) {
  ModelConfig llama = test::tiny_llama(), gpt2 = test::tiny_gpt2(), andrea = test::tiny_andrea();
  llama.n_layer = gpt2.n_layer = andrea.n_layer = 1;
  EXPECT_THAT(names(make_lora(llama, {.rank = 2})),
              testing::ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                                   "model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.o_proj"));
  const LoraAdapters fused = make_lora(gpt2, {.rank = 2, .targets = {"wq", "wk", "wv", "w_down"}});
  EXPECT_THAT(names(fused), testing::ElementsAre("transformer.h.0.attn.c_attn", "transformer.h.0.mlp.c_proj"));
  EXPECT_EQ(fused.values[1].shape(), (Dims{48, 2}));
  EXPECT_EQ(fused.tensor_name(1), "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight");
  EXPECT_THAT(names(make_lora(andrea, {.rank = 2, .targets = {"wo"}})), testing::ElementsAre("layers.0.wo"));
}

// W [2, 3], rank 1: A = (1, 2), B = (3, 0, -1), scale = 4 / 1.
TEST(LoraFile, AddsTheHandWorkedChange) {
  ModelConfig c = test::tiny_llama();
  c.n_layer = 1;
  Model model(c, 1);
  const LoraAdapters drawn = make_lora(c, {.rank = 1, .alpha = 4, .targets = {"wk"}});
  LoraAdapters adapters = drawn;
  std::fill_n(adapters.values[0].data(), adapters.values[0].size(), 0.0F);
  const std::size_t p = adapters.modules[0].parameters[0];  // [16, 8]
  const Tensor before = std::as_const(model).parameters()[p];
  adapters.values[0].data()[0] = 1;
  adapters.values[0].data()[1] = 2;
  adapters.values[1].data()[0] = 3;
  adapters.values[1].data()[2] = -1;
  add_lora(model, adapters);
  const float* w = std::as_const(model).parameters()[p].data();
  for (std::int64_t i = 0; i < 16; ++i)
    for (std::int64_t j = 0; j < 8; ++j) {
      const float change = i > 1 || (j != 0 && j != 2) ? 0.0F : 4.0F * (i == 0 ? 1.0F : 2.0F) * (j == 0 ? 3.0F : -1.0F);
      EXPECT_EQ(w[i * 8 + j], before.data()[i * 8 + j] + change) << i << " " << j;
    }
  Model other(test::tiny_gpt2(), 1);
  EXPECT_THAT([&] { add_lora(other, drawn); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("adapters of this model")));
}

TEST(LoraFile, RoundTrips) {
  for (const test::NamedConfig& named : test::tiny_models()) {
    const Scratch folder;
    LoraAdapters adapters = make_lora(named.config, {.rank = 3, .alpha = 5}, 4);
    for (std::int64_t i = 0; i < adapters.values[1].size(); ++i)
      adapters.values[1].data()[i] = 0.5F * static_cast<float>(i);
    adapters.base = "there/it is";
    save_lora(folder.path("a"), named.config, adapters);
    const LoraAdapters back = load_lora(folder.path("a"), named.config);
    EXPECT_EQ(back.rank, 3);
    EXPECT_EQ(back.alpha, 5);
    EXPECT_EQ(back.scale, adapters.scale);
    EXPECT_EQ(back.base, adapters.base);
    ASSERT_EQ(names(back), names(adapters));
    for (std::size_t i = 0; i < back.values.size(); ++i)
      EXPECT_EQ(std::memcmp(back.values[i].raw(), adapters.values[i].raw(), back.values[i].bytes()), 0);
    const json config = json::parse(read_all(folder.path("a/adapter_config.json")));
    EXPECT_EQ(config["fan_in_fan_out"], named.name == "gpt2");
    EXPECT_EQ(config["target_modules"], named.name == "llama"  ? json({"q_proj", "k_proj", "v_proj", "o_proj"})
                                        : named.name == "gpt2" ? json({"attn.c_attn", "attn.c_proj"})
                                                               : json({"wq", "wk", "wv", "wo"}));
  }
}

TEST(LoraFile, RefusesInvalidOptions) {
  const auto says = [](const LoraOptions& options, const ModelConfig& config, const std::string& what) {
    EXPECT_THAT([&] { make_lora(config, options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(what)));
  };
  says({.rank = 0}, test::tiny_llama(), "rank expected");
  says({.rank = 9}, test::tiny_llama(), "the smaller side of model.layers.0.self_attn.k_proj, 8; found 9");
  says({.alpha = 0}, test::tiny_llama(), "alpha expected");
  says({.rank = 2, .targets = {}}, test::tiny_llama(), "at least one");
  says({.rank = 2, .targets = {"wx"}}, test::tiny_llama(), "wq, wk, wv, wo, w_gate, w_up, w_down; found 'wx'");
  says({.rank = 2, .targets = {"w_gate"}}, test::tiny_andrea(), "found 'w_gate'");
  says({.rank = 2, .targets = {"wq", "wv"}}, test::tiny_gpt2(), "all or none of wq, wk, wv");
}

class LoraFileRefuses : public testing::Test {
 protected:
  LoraFileRefuses() {
    save_lora(folder_.path("a"), config_, make_lora(config_, {.rank = 2}));
    file_ = json::parse(read_all(folder_.path("a/adapter_config.json")));
  }
  void says(const std::string& what) const {
    EXPECT_THAT([&] { load_lora(folder_.path("a"), config_); }, ThrowsMessage<FileError>(HasSubstr(what)));
  }
  void with(const std::string& key, const json& value, const std::string& what) const {
    json changed = file_;
    changed[key] = value;
    folder_.file("a/adapter_config.json", changed.dump());
    says(what);
    folder_.file("a/adapter_config.json", file_.dump());
  }

  Scratch folder_;
  ModelConfig config_ = test::tiny_llama();
  json file_;
};

TEST_F(LoraFileRefuses, UnsupportedSettings) {
  with("peft_type", "LOHA", "expected LORA");
  with("use_dora", true, "only false is supported");
  with("bias", "all", "only none is supported");
  with("modules_to_save", {"lm_head"}, "modules_to_save");
  with("rank_pattern", {{"q_proj", 4}}, "rank_pattern");
  with("r", 0, "r");
  with("r", 3, "expected [3, 16]");
  with("lora_alpha", "much", "lora_alpha");
  with("use_rslora", 1, "use_rslora");
}

TEST_F(LoraFileRefuses, MismatchedTensors) {
  config_.n_layer = 1;
  says("layers.1.self_attn");
  config_ = test::tiny_gpt2();
  says("is not an adapter of a matrix of this model");
  config_ = test::tiny_llama();
  Tensor a(Dims{2, 16});  // [rank, in]
  const std::string file = folder_.path("a/adapter_model.safetensors");
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  write_safetensors(file, {{name + "A.weight", a.view()}});
  says("lora_B.weight': is missing");
  Tensor nan(Dims{16, 2});  // [out, rank]
  nan.data()[3] = std::numeric_limits<float>::quiet_NaN();
  write_safetensors(file, {{name + "A.weight", a.view()}, {name + "B.weight", nan.view()}});
  says("contains NaN");
  write_safetensors(file, {});
  says("contains no adapters");
}

}  // namespace
}  // namespace qkv
