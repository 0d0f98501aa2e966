// SPDX-License-Identifier: Apache-2.0
// config.json: version 2 written and read, version 1 read.
#include "formats/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "qkv/error.h"
#include "qkv/model_members.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kPath = "config.json";

ModelConfig read(const json& file) { return read_config_json(JsonPlace(kPath, file)); }

std::string error_of(const json& file) {
  try {
    read(file);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

// As a version 1 program wrote it.
const json kVersion1 = json::parse(R"({
  "qkv_format": 1, "model_type": "qkv", "n_layer": 2, "n_head": 4, "n_kv_head": 2, "head_dim": 6, "v_head_dim": 5,
  "d_model": 12, "d_ff": 20, "vocab_size": 260, "ctx_len": 16, "norm": "layernorm", "norm_gain": true,
  "norm_bias": true, "norm_eps": 3e-06, "embedding_norm": false, "final_norm": true, "activation": "swiglu",
  "positions": "rotary", "rope_theta": 12345.678, "attention_bias": true, "mlp_bias": false, "tied_head": true,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_ctx_len": 8192,
                   "frequency_factors": [1.0, 1.5, 3.0]}})");

TEST(ConfigJson, ReadsVersion1) {
  const ModelConfig c = read(kVersion1);
  EXPECT_TRUE(c.gated && c.activation == Activation::silu && c.qkv_bias && c.output_bias && !c.mlp_bias);
  EXPECT_EQ(c.norm, Norm::layernorm);
  EXPECT_EQ(c.v_head_dim, 5);
  EXPECT_EQ(c.rope_scaling, (RopeScaling{8, 1, 4, 8192, {1, 1.5, 3}}));
  EXPECT_EQ(c.window_left, -1);
  EXPECT_TRUE(c.layers.empty());
  EXPECT_EQ(read(config_json(c)), c);
  json plain = kVersion1;
  plain.erase("rope_scaling");
  plain["activation"] = "gelu";
  plain["positions"] = "learned";
  const ModelConfig d = read(plain);
  EXPECT_TRUE(!d.gated && d.activation == Activation::gelu);
  EXPECT_EQ(d.rope_scaling, RopeScaling{});
}

TEST(ConfigJson, Version1HasItsKeysAndNoOthers) {
  for (const auto& [key, value] : kVersion1.items()) {
    json missing = kVersion1;
    missing.erase(key);
    EXPECT_THAT(error_of(missing), key == "rope_scaling" ? HasSubstr("no error") : HasSubstr("has no '" + key + "'"));
  }
  for (const char* key : {"gated", "qkv_bias", "window_left", "layers", "dropout"}) {
    json more = kVersion1;
    more[key] = true;
    EXPECT_THAT(error_of(more), HasSubstr("unknown key '" + std::string(key) + "'"));
  }
  json changed = kVersion1;
  changed["activation"] = "silu";  // only valid in version 2
  EXPECT_THAT(error_of(changed), HasSubstr("'activation': expected one of relu, relu2, gelu, swiglu; found 'silu'"));
  changed = kVersion1;
  changed["attention_bias"] = 1;
  EXPECT_THAT(error_of(changed), HasSubstr("'attention_bias': expected true or false"));
  changed = kVersion1;
  changed["rope_scaling"] = 3;
  EXPECT_THAT(error_of(changed), HasSubstr("'rope_scaling': expected an object"));
}

TEST(ConfigJson, Version2HasItsKeysAndNoOthers) {
  const json good = config_json(ModelConfig{});
  EXPECT_EQ(error_of(good), "no error");
  for (const auto& [key, value] : good.items()) {
    json missing = good;
    missing.erase(key);
    EXPECT_THAT(error_of(missing), HasSubstr("has no '" + key + "'"));
  }
  json more = good;
  more["attention_bias"] = true;
  EXPECT_THAT(error_of(more), HasSubstr("unknown key 'attention_bias'"));
  more = good;
  more["rope_scaling"] = {{"factor", 2}};
  EXPECT_THAT(error_of(more), HasSubstr("has no 'low_freq_factor'"));
  more = good;
  more["qk_norm"] = "each";
  EXPECT_THAT(error_of(more), HasSubstr("'qk_norm': expected one of none, per_head, all_heads; found 'each'"));
  more["model_type"] = "opt";
  EXPECT_THAT(error_of(more), HasSubstr("expected one of qkv, gpt2, qwen3, qwen2 and llama; found 'opt'"));
}

TEST(ConfigJson, LayersListOnlyDifferences) {
  ModelConfig c;
  c.n_layer = 3;
  c.layers.assign(3, c);
  c.layers[1].window_left = 7;
  c.layers[2].positions = Positions::rotary;
  c.layers[2].rope_scaling.factor = 4;
  json file = config_json(c);
  EXPECT_EQ(file["layers"][0], json::object());
  EXPECT_EQ(file["layers"][1], json({{"window_left", 7}}));
  EXPECT_EQ(file["layers"][2]["positions"], "rotary");
  EXPECT_EQ(file["layers"][2]["rope_scaling"]["factor"], 4);
  EXPECT_EQ(file["layers"][2].size(), 2u);
  EXPECT_EQ(read(file), c.resolved());
  file["layers"][1]["n_layer"] = 2;
  EXPECT_THAT(error_of(file), HasSubstr("'layers'[1]: has the unknown key 'n_layer'"));
  file["layers"] = {json::object(), json::object()};
  EXPECT_THAT(error_of(file), HasSubstr("'layers': expected one for each of the 3 layers; found 2"));
  file["layers"] = 3;
  EXPECT_THAT(error_of(file), HasSubstr("'layers': expected a list; found 3"));
  file["layers"] = {json::object(), json::object(), json::object()};
  EXPECT_TRUE(read(file).layers.empty());  // all the same
}

// A random configuration; invalid ones are discarded.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}

  void operator()(const char* key, std::int64_t& value) {
    if (std::string_view(key) == "window_left" && below(2) == 0)
      value = -1;
    else if (std::string_view(key).starts_with("n_"))
      value = std::int64_t{1} << below(3);
    else
      value = 2 * static_cast<std::int64_t>(1 + below(12));
  }
  void operator()(const char*, bool& value) { value = below(2) == 0; }
  void operator()(const char* key, double& value) {
    value = std::string_view(key) == "rope_share" ? 0.5 + 0.5 * static_cast<double>(below(2))
                                                  : 0.01 + static_cast<double>(below(1000)) / 7;
  }
  void operator()(const char*, std::vector<double>& value) {
    for (double& one : value) one = 1 + static_cast<double>(below(9));
  }
  template <class E>
  requires std::is_enum_v<E>
  void operator()(const char*, E& value) { value = static_cast<E>(below(kEnumNames<E>.size())); }

  std::uint64_t below(std::uint64_t n) { return random_.below(draw_++, n); }

 private:
  Random random_;
  std::uint64_t draw_ = 0;
};

TEST(ConfigJson, RandomConfigurationsRoundTrip) {
  Draws draws(3);
  const auto visit = [&](const char* key, auto& value) { draws(key, value); };
  int kept = 0, with_layers = 0, scaled = 0;
  for (int round = 0; round < 4000; ++round) {
    ModelConfig c;
    for_each_member(c, visit);
    if (draws.below(2) == 0) {
      c.layers.assign(static_cast<std::size_t>(c.n_layer), c);
      for (LayerConfig& layer : c.layers) {
        for_each_member(layer, visit);
        if (layer.positions == Positions::rotary) for_each_member(layer.rope_scaling, visit);
      }
    }
    try {
      c = c.resolved();
    } catch (const std::invalid_argument&) {
      continue;
    }
    ++kept;
    with_layers += c.layers.empty() ? 0 : 1;
    scaled += !c.layers.empty() && !(c.layers[0].rope_scaling == RopeScaling{});
    const std::string text = config_json(c).dump(2);
    ASSERT_EQ(read(parse_json(kPath, text)), c) << text;
  }
  EXPECT_GT(kept, 100);
  EXPECT_GT(with_layers, 5);
  EXPECT_GT(scaled, 1);
}

}  // namespace
}  // namespace qkv
