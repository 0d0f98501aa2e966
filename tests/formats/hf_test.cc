// SPDX-License-Identifier: Apache-2.0
// Directories saved by `transformers` (scripts/make_hf_golden.py), compared with its results.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "formats/open_model.h"
#include "formats/safetensors.h"
#include "formats/scratch.h"
#include "formats/tensor_files.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kGolden = QKV_SOURCE_DIR "/tests/formats/golden/";
const std::vector<std::string> kNames = {"hf_gpt2", "hf_gpt2_untied", "hf_llama", "hf_llama3", "hf_llama_linear"};

Tensor golden(const std::string& name, const std::string& what) {
  return load_npy(kGolden + name + "_" + what + ".npy");
}

// The largest difference relative to the largest value, or to `size` if that is larger.
double deviation(const Tensor& got, const Tensor& wanted, double size = 0) {
  double most = 0;
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, std::abs(double{got.data()[i]} - double{wanted.data()[i]}));
    size = std::max(size, std::abs(double{wanted.data()[i]}));
  }
  return most / size;
}

double global_norm(const std::vector<Tensor>& tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors)
    for (std::int64_t i = 0; i < tensor.size(); ++i) sum += double{tensor.data()[i]} * double{tensor.data()[i]};
  return std::sqrt(sum);
}

std::string copy_of(const std::string& name, const Scratch& scratch) {
  const std::string folder = scratch.path("m");
  std::filesystem::remove_all(folder);
  std::filesystem::copy(kGolden + name, folder);
  return folder;
}

std::string error_of(const std::string& path) {
  try {
    load_model(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(HuggingFace, LogitsLossAndGradientsMatchTransformers) {
  for (const std::string& name : kNames) {
    SCOPED_TRACE(name);
    Model model = load_model(kGolden + name).model;
    const Tensor tokens = golden(name, "tokens"), targets = golden(name, "targets");  // [batch, ctx]
    Batch batch{tokens.shape()[0], tokens.shape()[1], {}, {}, {}};
    batch.tokens = {tokens.data<std::int32_t>(), static_cast<std::size_t>(tokens.size())};
    batch.targets = {targets.data<std::int32_t>(), static_cast<std::size_t>(targets.size())};
    EXPECT_LT(deviation(model.logits(batch), golden(name, "logits")), 1e-4 / 10);
    std::vector<Tensor> gradients = model.zeros_like_parameters();
    const Loss loss = model.loss(batch);
    model.loss_and_gradients(batch, 1.0 / static_cast<double>(loss.count), gradients);
    const double wanted = golden(name, "loss").data<double>()[0];
    EXPECT_NEAR(loss.mean(), wanted, 1e-4 / 10 * wanted);
    // The gradients are stored in a file under the model's names: loaded as another model of the same configuration.
    const Scratch scratch;
    const std::string folder = copy_of(name, scratch);
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().starts_with("model")) std::filesystem::remove(entry);
    std::filesystem::copy(kGolden + name + "_gradients.safetensors", folder + "/model.safetensors");
    const Model expected = load_model(folder).model;
    // A bias added to all keys has no effect, so its gradient is 0 apart from rounding.
    const double all = global_norm(expected.parameters());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_LT(deviation(gradients[i], expected.parameters()[i], 1e-3 * all), 1e-4) << model.infos()[i].name;
  }
}

// Models of scripts/make_qwen_golden.py: Qwen2 with windows in its last two layers, Qwen3 with an explicit head_dim.
TEST(HuggingFace, QwenLogitsMatchItsEquations) {
  for (const std::string name : {"hf_qwen2", "hf_qwen3"}) {
    SCOPED_TRACE(name);
    LoadedModel loaded = load_model(kGolden + name);
    const Tensor tokens = golden(name, "tokens"), targets = golden(name, "targets");  // [batch, ctx]
    Batch batch{tokens.shape()[0], tokens.shape()[1], {}, {}, {}};
    batch.tokens = {tokens.data<std::int32_t>(), static_cast<std::size_t>(tokens.size())};
    batch.targets = {targets.data<std::int32_t>(), static_cast<std::size_t>(targets.size())};
    EXPECT_LT(deviation(loaded.model.logits(batch), golden(name, "logits")), 1e-5);
    const double wanted = golden(name, "loss").data<double>()[0];
    EXPECT_NEAR(loaded.model.loss(batch).mean(), wanted, 1e-5 * wanted);
  }
}

TEST(HuggingFace, Qwen3RoundTripsThroughGguf) {
  const Scratch scratch;
  const LoadedModel loaded = load_model(kGolden + "hf_qwen3");
  save_gguf(scratch.path("m.gguf"), loaded.model, loaded.tokenizer, "f32", loaded.text_facts());
  EXPECT_EQ(inspect_model(scratch.path("m.gguf")).format, "GGUF v3 qwen3");
  const LoadedModel gguf = load_model(scratch.path("m.gguf"));
  save_hugging_face(scratch.path("back"), gguf.model, gguf.tokenizer);
  const LoadedModel back = load_model(scratch.path("back"));
  EXPECT_EQ(back.model.config().qk_norm, QkNorm::per_head);
  EXPECT_EQ(back.model.config().head_dim, 6);
  for (std::size_t i = 0; i < loaded.model.infos().size(); ++i) {
    const Tensor &a = back.model.parameters()[i], &b = loaded.model.parameters()[i];
    ASSERT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << loaded.model.infos()[i].name;
  }
  // GGUF has no windows for qwen2.
  const LoadedModel windowed = load_model(kGolden + "hf_qwen2");
  EXPECT_THAT([&] { save_gguf(scratch.path("w.gguf"), windowed.model, windowed.tokenizer); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("window_left 2 instead of -1 in layer 1")));
}

TEST(HuggingFace, ReadsConfigurations) {
  const LoadedModel llama = load_model(kGolden + "hf_llama3");
  const ModelConfig& c = llama.model.config();
  EXPECT_EQ(c.n_kv_head, 2);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.rope_theta, 100);
  EXPECT_EQ(c.rope_scaling, (RopeScaling{4, 1, 4, 16, {}}));
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_TRUE(c.qkv_bias && c.output_bias && c.mlp_bias && !c.tied_head);
  EXPECT_THAT(llama.end_tokens, testing::ElementsAre(256, 257));
  const ModelFacts facts = inspect_model(kGolden + "hf_gpt2_untied");
  EXPECT_EQ(facts.format, "Hugging Face gpt2");
  EXPECT_EQ(facts.config.d_ff, 20);
  EXPECT_FALSE(facts.config.tied_head);
  EXPECT_EQ(facts.tensors[0].type, "F16");
  EXPECT_EQ(open_model(kGolden + "hf_llama3")->dtype(), DType::bf16);
  EXPECT_EQ(open_model(kGolden + "hf_gpt2_untied")->dtype(), DType::f32);
}

// Written and read back: the same numbers, in every type and in shards. scripts/check_hf.py checks that `transformers`
// reads them too.
TEST(HuggingFace, RoundTrips) {
  const Scratch scratch;
  std::vector<std::string> names = kNames;
  names.insert(names.end(), {"hf_qwen2", "hf_qwen3"});
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const LoadedModel loaded = load_model(kGolden + name);
    for (const std::int64_t shard : {std::int64_t{1} << 40, std::int64_t{9000}}) {
      HuggingFaceOptions options;
      options.shard_bytes = shard;
      options.facts.end_tokens = {256, 271};
      save_hugging_face(scratch.path(name), loaded.model, loaded.tokenizer, options);
      const LoadedModel again = load_model(scratch.path(name));
      EXPECT_EQ(again.model.config(), loaded.model.config());
      EXPECT_EQ(again.end_tokens, options.facts.end_tokens);
      for (std::size_t i = 0; i < loaded.model.infos().size(); ++i) {
        const Tensor &a = again.model.parameters()[i], &b = loaded.model.parameters()[i];
        ASSERT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << loaded.model.infos()[i].name;
      }
      EXPECT_EQ(std::filesystem::exists(scratch.path(name) + "/model.safetensors"), shard > 9000);
    }
  }
  // The same names, types and bytes as `transformers` writes.
  HuggingFaceOptions options;
  options.type = DType::bf16;
  options.shard_bytes = 12'000;
  const LoadedModel loaded = load_model(kGolden + "hf_llama3");
  save_hugging_face(scratch.path("b"), loaded.model, loaded.tokenizer, options);
  const TensorFiles ours = TensorFiles::open(scratch.path("b")), theirs = TensorFiles::open(kGolden + "hf_llama3");
  ASSERT_EQ(ours.names(), theirs.names());
  for (const std::string_view name : theirs.names()) {
    const ConstView a = ours.find(name), b = theirs.find(name);
    ASSERT_EQ(a.shape, b.shape);
    EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<std::size_t>(2 * element_count(a.shape))), 0) << name;
  }
}

TEST(HuggingFace, RefusesToWriteOtherArchitectures) {
  const Scratch scratch;
  const ModelConfig andrea = preset("andrea-12m");
  ModelConfig tiny = andrea;
  tiny.n_layer = 1;
  tiny.ctx_len = 4;
  EXPECT_THROW(save_hugging_face(scratch.path("m"), Model(tiny), Tokenizer::bytes()), std::invalid_argument);
  EXPECT_EQ(scratch.entries(), 0);
}

TEST(HuggingFace, AcceptsTheInnerModelAndOldBuffers) {
  const Scratch scratch;
  for (const std::string name : {"hf_gpt2", "hf_llama"}) {
    const std::string folder = copy_of(name, scratch);
    const SafetensorsFile file(kGolden + name + "/model.safetensors");
    const Tensor mask({1, 1, 16, 16}, DType::boolean), head({272, 16});
    std::vector<NamedView> tensors;
    for (const auto& entry : file.tensors())
      tensors.push_back({entry.name.substr(entry.name.find('.') + 1), file.find(entry.name)});
    if (name == "hf_gpt2")
      tensors.push_back({"h.0.attn.bias", mask});
    else
      tensors.push_back({"lm_head.weight", head});
    write_safetensors(folder + "/model.safetensors", tensors);
    EXPECT_EQ(error_of(folder), "no error");
    tensors.push_back({"score.weight", head});
    write_safetensors(folder + "/model.safetensors", tensors);
    EXPECT_THAT(error_of(folder), HasSubstr("tensor 'score.weight': is not a parameter"));
  }
}

std::string with_key(const std::string& name, const std::string& key, const json& value) {
  const Scratch scratch;
  const std::string folder = copy_of(name, scratch);
  json config = json::parse(read_all(folder + "/config.json"));
  config[json::json_pointer("/" + key)] = value;
  scratch.file("m/config.json", config.dump());
  return error_of(folder);
}

TEST(HuggingFace, RefusesUnsupportedSettingsByName) {
  EXPECT_THAT(with_key("hf_gpt2", "model_type", "opt"),
              HasSubstr("expected one of qkv, gpt2, qwen3, qwen2 and llama; found 'opt'"));
  EXPECT_THAT(with_key("hf_gpt2", "activation_function", "gelu"), HasSubstr("found 'gelu'"));
  EXPECT_THAT(with_key("hf_gpt2", "scale_attn_weights", false), HasSubstr("'scale_attn_weights': only true"));
  EXPECT_THAT(with_key("hf_gpt2", "scale_attn_by_inverse_layer_idx", true), HasSubstr("only false"));
  EXPECT_THAT(with_key("hf_gpt2", "n_head", 5), HasSubstr("multiple of n_head"));
  EXPECT_THAT(with_key("hf_gpt2", "n_inner", 50), HasSubstr("expected [12, 50]"));
  EXPECT_THAT(with_key("hf_gpt2", "eos_token_id", "x"), HasSubstr("whole number"));
  EXPECT_THAT(with_key("hf_llama", "quantization_config", {{"bits", 4}}), HasSubstr("'quantization_config'"));
  EXPECT_THAT(with_key("hf_llama", "hidden_act", "gelu"), HasSubstr("'hidden_act': expected silu"));
  EXPECT_THAT(with_key("hf_llama", "num_hidden_layers", 1000000000000), HasSubstr("n_layer"));
  EXPECT_THAT(with_key("hf_llama", "num_hidden_layers", 60000), HasSubstr("too few"));
  EXPECT_THAT(with_key("hf_llama", "rope_parameters/rope_type", "yarn"), HasSubstr("'yarn' is not supported"));
  EXPECT_THAT(with_key("hf_llama3", "rope_parameters/beta_fast", 32), HasSubstr("unknown key 'beta_fast'"));
  EXPECT_THAT(with_key("hf_llama3", "rope_parameters/factor", 0), HasSubstr("rope_scaling.factor"));
  EXPECT_THAT(with_key("hf_llama3", "attention_bias", false), HasSubstr("is not a parameter"));
  EXPECT_THAT(with_key("hf_llama3", "eos_token_id", 5), "no error");
}

TEST(HuggingFace, RefusesShardsThatDoNotMatchTheIndex) {
  const Scratch scratch;
  const std::string folder = copy_of("hf_llama3", scratch), index = folder + "/model.safetensors.index.json";
  const json good = json::parse(read_all(index));
  const auto with = [&](const std::string& tensor, const json& shard) {
    json changed = good;
    changed["weight_map"][tensor] = shard;
    scratch.file("m/model.safetensors.index.json", changed.dump());
    return error_of(folder);
  };
  EXPECT_THAT(with("model.norm.weight", "../m/model-00001-of-00003.safetensors"),
              HasSubstr("a file name without a path"));
  EXPECT_THAT(with("model.norm.weight", "/etc/passwd"), HasSubstr("a file name without a path"));
  EXPECT_THAT(with("model.norm.weight", "none.safetensors"), HasSubstr("none.safetensors: cannot be opened"));
  EXPECT_THAT(with("model.norm.weight", 3), HasSubstr("expected a string"));
  EXPECT_THAT(with("more", "model-00001-of-00003.safetensors"),
              HasSubstr("'more': is missing, but the index lists it here"));
  json fewer = good;
  fewer["weight_map"].erase("model.norm.weight");
  scratch.file("m/model.safetensors.index.json", fewer.dump());
  EXPECT_THAT(error_of(folder), HasSubstr("'model.norm.weight': is in this file, but the index does not list it here"));
}

TEST(HuggingFace, VerifyChecksEveryNumber) {
  const Scratch scratch;
  const std::string folder = copy_of("hf_gpt2", scratch);
  EXPECT_EQ(verify_path(folder), "Hugging Face gpt2 model: 7248 parameters in 28 tensors, tokenizer of 272");
  EXPECT_EQ(verify_path(folder + "/tokenizer.json"), "tokenizer of 272 tokens");
  EXPECT_EQ(verify_path(folder + "/config.json"), "configuration of 2 layers, d_model 12, vocabulary 272");
  EXPECT_EQ(verify_path(kGolden + "hf_llama3/model.safetensors.index.json"),
            "sharded safetensors: 35 tensors in 3 files");
  Model model = load_model(folder).model;
  model.change_parameters()->back().data()[3] = std::nanf("");
  save_hugging_face(folder, model, Tokenizer::bytes());
  EXPECT_THAT(error_of(folder), HasSubstr("element 3 is not finite"));
  try {
    verify_path(folder);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter 'final_norm.bias': element 3 is not finite"));
  }
}

}  // namespace
}  // namespace qkv
