// SPDX-License-Identifier: Apache-2.0
// What each family can express, changing one member of the configuration at a time: it either round-trips or is refused
// by name. Nothing is dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <span>

#include "formats/config_json.h"
#include "formats/gguf_config.h"
#include "formats/hf_config.h"
#include "formats/small_models.h"
#include "qkv/model_members.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

ModelConfig of_base(const Family& family) {
  ModelConfig c = family.base();
  c.n_layer = 3;
  c.n_head = 4;
  c.d_model = 24;
  c.d_ff = 20;
  c.vocab_size = 9;
  c.ctx_len = 16;
  return c.resolved();
}

ModelConfig through_hf(const ModelConfig& c) {
  const Family& family = hf_family_of(c);
  const std::string path = "config.json";
  const nlohmann::json file = nlohmann::json::parse(hf_config_text(family, c, "float32", {}, {}));
  EXPECT_EQ(file["model_type"], family.hf_type);
  return read_hf_config(JsonPlace(path, file), family);
}

// Through a whole file, without weights.
ModelConfig through_gguf(const ModelConfig& c) {
  const Family& family = gguf_family_of(c);
  GgufWriter writer;
  write_gguf_config(writer, family, c);
  writer.strings("tokenizer.ggml.tokens", std::vector<std::string>(static_cast<std::size_t>(c.vocab_size), "t"));
  std::set<std::string> names;
  for (const TensorPlace& place : gguf_places(family, c, parameter_infos(c))) {
    std::vector<std::int64_t> dims{place.shape[place.shape.rank() - 1]};
    if (place.shape.rank() == 2) dims.push_back(place.shape[0]);
    if (names.insert(place.name).second)
      writer.tensor(place.name, dims, DType::f32, [n = dims[0]](std::int64_t, float* to) { std::fill_n(to, n, 0.0f); });
  }
  const std::string bytes = writer.bytes();
  const Gguf file("f.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_EQ(&read_gguf_family(file), &family);
  return read_gguf_config(file, family);
}

// Equal except for the rounding of numbers to f32 and the representation of scaled rotary frequencies.
bool same(const ModelConfig& a, const ModelConfig& b) {
  const auto rounded = [](auto c) {
    for_each_member(c, [](const char*, auto& member) {
      if constexpr (std::is_same_v<decltype(member), double&>) member = static_cast<float>(member);
    });
    return c;
  };
  if (members_json(rounded(a)) != members_json(rounded(b))) return false;
  for (std::int64_t i = 0; i < a.n_layer; ++i) {
    LayerConfig x = rounded(a.layer(i)), y = rounded(b.layer(i));
    if (x.positions != Positions::rotary) x.rope_theta = y.rope_theta;  // has no effect
    const std::vector<double> f = rotary_frequencies(x), g = rotary_frequencies(y);
    if (x.rope_scaling.attention_factor != y.rope_scaling.attention_factor || f.size() != g.size()) return false;
    for (std::size_t k = 0; k < f.size(); ++k)
      if (std::abs(f[k] - g[k]) > 1e-6 * f[k]) return false;
    x.rope_scaling = y.rope_scaling = {};
    if (!(x == y)) return false;
  }
  return true;
}

// Every value to change a member to.
void changes_of(std::string_view key, std::int64_t& member, const std::function<void()>& changed) {
  const std::int64_t before = member;
  for (const std::int64_t value : {before * 2, before / 2, std::int64_t{key == "window_left" ? 5 : 12}})
    if (value != before) member = value, changed();
  member = before;
}
void changes_of(std::string_view, bool& member, const std::function<void()>& changed) {
  member = !member;
  changed();
  member = !member;
}
void changes_of(std::string_view key, double& member, const std::function<void()>& changed) {
  const double before = member;
  member = key == "rope_share" ? 0.5 : before * 3 + 0.25;
  changed();
  member = before;
}
template <class E>
requires std::is_enum_v<E>
void changes_of(std::string_view, E& member, const std::function<void()>& changed) {
  const E before = member;
  for (std::size_t i = 0; i < kEnumNames<E>.size(); ++i)
    if (static_cast<E>(i) != before) member = static_cast<E>(i), changed();
  member = before;
}

struct Count {
  int kept = 0, refused = 0;
};

// Checks that a configuration round-trips or is refused with the name of the member.
void check(const ModelConfig& c, const std::string& key, const std::function<ModelConfig(const ModelConfig&)>& through,
           Count& count) {
  ModelConfig valid;
  try {
    valid = c.resolved();
  } catch (const std::invalid_argument&) {
    return;  // not a valid configuration
  }
  try {
    const ModelConfig back = through(valid);
    EXPECT_TRUE(same(back, valid)) << config_json(back).dump() << "\n" << config_json(valid).dump();
    ++count.kept;
  } catch (const std::invalid_argument& error) {
    // If the heads no longer add up to d_model, or biases that a family only has together differ, the message names the
    // other member.
    const bool sizes = key == "d_model" || key == "n_head";
    const std::string other = sizes               ? "head_dim"
                              : key == "head_dim" ? "v_head_dim"
                              : key == "qkv_bias" ? "output_bias"
                                                  : key;
    EXPECT_THAT(error.what(), AnyOf(HasSubstr(" " + key), HasSubstr(" " + other + " ")));
    ++count.refused;
  }
}

// Changes every member of every family's configuration, for the whole model and for one layer.
void check_all(FileFormat format, const std::function<ModelConfig(const ModelConfig&)>& through, Count least) {
  Count count;
  std::set<std::string> tried;
  for (const Family* family : families()) {
    if (type_in(*family, format).empty()) continue;
    ModelConfig c = of_base(*family);
    SCOPED_TRACE(type_in(*family, format));
    EXPECT_TRUE(same(through(c), c));
    for_each_member(c, [&](const char* key, auto& member) {
      SCOPED_TRACE(key);
      changes_of(key, member, [&] { check(c, key, through, count); });
      tried.insert(key);
    });
    c.layers.assign(3, c);
    for_each_member(c.layers[1], [&](const char* key, auto& member) {
      SCOPED_TRACE(std::string("layer 1 ") + key);
      changes_of(key, member, [&] { check(c, key, through, count); });
    });
    c.layers.clear();
    if (c.positions != Positions::rotary) continue;
    for_each_member(c.rope_scaling, [&](const char* key, auto& member) {
      SCOPED_TRACE(key);
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, std::vector<double>>) {
        member = {1, 2.5, 4};
        check(c, "rope_scaling", through, count);
        member.clear();
      } else {
        changes_of(key, member, [&] { check(c, "rope_scaling", through, count); });
      }
    });
    c.rope_scaling = {8, 1, 4, 64, {}};
    check(c, "rope_scaling", through, count);
  }
  EXPECT_EQ(tried.size(), members_json(ModelConfig{}).size() + members_json(LayerConfig{}).size() - 1);
  EXPECT_GT(count.kept, least.kept);
  EXPECT_GT(count.refused, least.refused);
}

TEST(Families, HuggingFaceKeepsEachMemberOrRefusesItByName) {
  check_all(FileFormat::hugging_face, through_hf, {50, 200});
}

TEST(Families, GgufKeepsEachMemberOrRefusesItByName) { check_all(FileFormat::gguf, through_gguf, {50, 200}); }

TEST(Families, AllMismatchesAreListedAtOnce) {
  ModelConfig c = test::small_llama();
  c.softcap = 30;
  c.sinks = true;
  c.norm_place = NormPlace::both;
  c.logit_scale = 0.5;
  c.layers.assign(static_cast<std::size_t>(c.n_layer), c);
  c.layers[1].window_left = 7;
  const auto all = AllOf(HasSubstr("one of the families gpt2, qwen3, qwen2 and llama; found one that differs from "),
                         HasSubstr("softcap 30.0 instead of 0.0 in layer 0"), HasSubstr("sinks true instead of false"),
                         HasSubstr(R"(norm_place "both" instead of "before")"),
                         HasSubstr("from llama in logit_scale 0.5 instead of 1.0, softcap"),
                         HasSubstr("window_left 7 instead of -1 in layer 1"), Not(HasSubstr("activation")));
  EXPECT_THAT([&] { hf_family_of(c); }, ThrowsMessage<std::invalid_argument>(all));
  EXPECT_THAT([&] { gguf_family_of(c); }, ThrowsMessage<std::invalid_argument>(all));
}

TEST(Families, OnlyDifferingRopeScalingFieldsAreListed) {
  ModelConfig c = test::small_llama();
  c.rope_scaling.frequency_factors.assign(static_cast<std::size_t>(c.resolved().head_dim / 2), 1.25);
  EXPECT_THAT([&] { hf_family_of(c); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("rope_scaling.frequency_factors [1.25,1.25,1.25,1.25,1.25,1.25,1.25,1... instead of []")));
}

TEST(Families, TheMostSpecificFamilyIsWritten) {
  ModelConfig c = test::small_llama();
  EXPECT_EQ(hf_family_of(c).hf_type, "llama");
  c.qkv_bias = true;
  EXPECT_EQ(hf_family_of(c).hf_type, "qwen2");
  EXPECT_EQ(gguf_family_of(c).gguf_type, "qwen2");
  c.mlp_bias = true;  // only llama has it, and its GGUF files distinguish each kind of bias
  EXPECT_EQ(gguf_family_of(c).gguf_type, "llama");
  c.mlp_bias = false;
  c.qk_norm = QkNorm::per_head;
  c.output_bias = true;
  EXPECT_EQ(hf_family_of(c).hf_type, "qwen3");
  EXPECT_THAT([&] { gguf_family_of(c); }, ThrowsMessage<std::invalid_argument>(HasSubstr("output_bias")));
  EXPECT_EQ(hf_family_of(test::small_gpt2()).hf_type, "gpt2");
}

ModelConfig read_hf(const std::string& type, const nlohmann::json& changes) {
  const Family& family = *find_family(FileFormat::hugging_face, type);
  nlohmann::json file = nlohmann::json::parse(hf_config_text(family, of_base(family), "float32", {}, {}));
  file.update(changes);
  const std::string path = "config.json";
  return read_hf_config(JsonPlace(path, file), family);
}

std::vector<std::int64_t> windows(const ModelConfig& c) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < c.n_layer; ++i) all.push_back(c.layer(i).window_left);
  return all;
}

TEST(Families, QwenWindowsApplyToTheLayersThatTheFileNames) {
  const nlohmann::json used = {{"use_sliding_window", true}, {"sliding_window", 10}};
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changes = used;
    changes[key] = value;
    return changes;
  };
  EXPECT_THAT(windows(read_hf("qwen2", {{"sliding_window", 10}})), ElementsAre(-1, -1, -1));  // not used
  EXPECT_THAT(windows(read_hf("qwen2", with("max_window_layers", 1))), ElementsAre(-1, 9, 9));
  EXPECT_THAT(windows(read_hf("qwen2", with("max_window_layers", 0))), ElementsAre(9, 9, 9));
  EXPECT_THAT(windows(read_hf("qwen3", used)), ElementsAre(-1, -1, -1));  // from layer 28 on
  const std::vector<std::string> types{"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(windows(read_hf("qwen3", with("layer_types", types))), ElementsAre(-1, 9, -1));
  const auto refused = [](const nlohmann::json& changes, const char* reason) {
    EXPECT_THAT([&] { read_hf("qwen3", changes); }, ThrowsMessage<std::exception>(HasSubstr(reason)));
  };
  refused({{"layer_types", types}}, "'layer_types': expected use_sliding_window and sliding_window");
  refused(with("layer_types", {"full_attention"}), "'layer_types': expected one for each of the 3 layers; found 1");
  refused(with("layer_types", {"full_attention", "linear_attention", "full_attention"}), "found 'linear_attention'");
  refused(with("sliding_window", 0), "'sliding_window'");
}

TEST(Families, DefaultsMatchTransformers) {
  EXPECT_EQ(read_hf("qwen3", {{"head_dim", nullptr}}).head_dim, 128);
  EXPECT_EQ(read_hf("llama", {{"head_dim", nullptr}}).head_dim, 6);
  EXPECT_EQ(read_hf("qwen2", {{"head_dim", nullptr}}).head_dim, 6);
  const ModelConfig biased = read_hf("qwen3", {{"attention_bias", true}});
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
  const ModelConfig qwen2 = read_hf("qwen2", {{"attention_bias", false}});  // qwen2 ignores this key
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias);
}

std::vector<std::string> names(const char* type, FileFormat format) {
  const Family& family = *find_family(format, type);
  ModelConfig c = of_base(family);
  c.n_layer = 1;
  std::vector<std::string> all;
  for (const TensorPlace& place : format == FileFormat::gguf ? gguf_places(family, c, parameter_infos(c))
                                                             : tensor_places(family, format, c, parameter_infos(c)))
    if (all.empty() || all.back() != place.name) all.push_back(place.name);
  return all;
}

TEST(Families, TensorsOfQwen3AreNamedAsInItsFiles) {
  EXPECT_THAT(names("qwen3", FileFormat::hugging_face),
              ElementsAre("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                          "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                          "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.q_norm.weight",
                          "model.layers.0.self_attn.k_norm.weight", "model.layers.0.self_attn.o_proj.weight",
                          "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight",
                          "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
                          "model.norm.weight", "lm_head.weight"));
  EXPECT_THAT(names("qwen3", FileFormat::gguf),
              ElementsAre("token_embd.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                          "blk.0.attn_v.weight", "blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
                          "blk.0.attn_output.weight", "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight",
                          "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "output_norm.weight", "output.weight"));
}

}  // namespace
}  // namespace qkv
