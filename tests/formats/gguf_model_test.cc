// SPDX-License-Identifier: Apache-2.0
// Models in GGUF files: read, refused, written and read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/block_types.h"
#include "formats/gguf.h"
#include "formats/gguf_bytes.h"
#include "formats/gguf_source.h"
#include "formats/gguf_splits.h"
#include "formats/scratch.h"
#include "formats/small_models.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

using test::GgufBytes;
using test::small_gpt2;
using test::small_llama;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model model_of(const ModelSource& source) {
  Model model(source.config());
  for (std::size_t i = 0; i < model.infos().size(); ++i) source.read(i, model.change_parameters()[i].view());
  return model;
}

// [vocab_size] after the last of some tokens
std::vector<float> logits_of(Model& model) {
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocab_size));
  ModelState state = model.make_state();
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  model.decode(tokens, state, logits);
  return logits;
}

Tokenizer small_tokenizer() {
  return Tokenizer::train_bpe("in the beginning was the word, the word was in it", 270, {});
}

void expect_same_parameters(const Model& a, const Model& b, double tolerance) {
  ASSERT_EQ(a.infos().size(), b.infos().size());
  for (std::size_t i = 0; i < a.infos().size(); ++i) {
    ASSERT_EQ(a.infos()[i].name, b.infos()[i].name);
    const float *x = a.parameters()[i].data(), *y = b.parameters()[i].data();
    for (std::int64_t k = 0; k < a.parameters()[i].size(); ++k)
      ASSERT_NEAR(x[k], y[k], tolerance) << a.infos()[i].name << " element " << k;
  }
}

// Changes parameters initialised to ones and zeros, so that leaving one out shows.
void random_vectors(Model& model) {
  const Model::ParameterAccess parameters = model.change_parameters();
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    if (model.infos()[i].shape.rank() == 1)
      for (std::int64_t k = 0; k < parameters[i].size(); ++k)
        parameters[i].data()[k] = 0.5f + 0.01f * static_cast<float>((k * 7 + static_cast<std::int64_t>(i)) % 50);
}

TEST(GgufModel, RoundTripsInF32) {
  const Scratch scratch;
  ModelConfig tied = small_llama(), scaled = small_llama(), biased = small_llama(), untied_gpt2 = small_gpt2();
  tied.tied_head = true;
  scaled.tied_head = false;
  scaled.rope_scaling.factor = 8;
  scaled.rope_scaling.low_freq_factor = 1;
  scaled.rope_scaling.high_freq_factor = 4;
  scaled.rope_scaling.original_ctx_len = 64;
  biased.qkv_bias = biased.output_bias = biased.mlp_bias = true;
  untied_gpt2.tied_head = false;
  for (const ModelConfig& config : {tied, scaled, biased, small_gpt2(), untied_gpt2}) {
    Model model(config, 3);
    random_vectors(model);
    save_gguf(scratch.path("m.gguf"), model, small_tokenizer(), "f32");
    const auto source = open_gguf(scratch.path("m.gguf"));
    Model back = model_of(*source);
    expect_same_parameters(model, back, 0);
    ModelConfig expected = config.resolved(), found = source->config();
    EXPECT_NEAR(found.norm_eps, expected.norm_eps, 1e-12);
    const std::vector<double> frequencies = rotary_frequencies(expected), read = rotary_frequencies(found);
    for (std::size_t i = 0; i < frequencies.size(); ++i) EXPECT_NEAR(read[i] / frequencies[i], 1, 1e-6);
    expected.norm_eps = found.norm_eps = 1;
    expected.rope_scaling = found.rope_scaling = {};
    EXPECT_EQ(found, expected);
    const std::vector<float> a = logits_of(model), b = logits_of(back);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
    EXPECT_EQ(source->tokenizer().size(), 300);  // padded with unused tokens
    EXPECT_EQ(source->tokenizer().encode("the word"), small_tokenizer().encode("the word"));
  }
}

TEST(GgufModel, EachTypeIsCloseToTheModel) {
  const Scratch scratch;
  const Model llama(small_llama(), 3), gpt2(small_gpt2(), 3);
  const std::pair<const char*, double> types[] = {
      {"f16", 1e-4}, {"bf16", 4e-4}, {"q8_0", 6e-4}, {"q4_0", 1.2e-2}, {"q4_1", 8e-3}};
  for (const auto& [type, tolerance] : types)
    for (const Model* model : {&llama, &gpt2}) {
      save_gguf(scratch.path("m.gguf"), *model, small_tokenizer(), type);
      const auto source = open_gguf(scratch.path("m.gguf"));
      expect_same_parameters(*model, model_of(*source), tolerance);
      for (const StoredTensor& tensor : source->tensors()) {
        const bool by_token = tensor.name == "token_embd.weight" && type[1] == '4';
        const bool plain = tensor.shape.size() == 1 || tensor.name == "position_embd.weight";
        EXPECT_EQ(row_type_from_name(tensor.type), row_type_from_name(plain      ? "f32"
                                                                      : by_token ? "q8_0"
                                                                                 : type))
            << tensor.name;
      }
    }
}

TEST(GgufModel, RowsOfQAndKAreAdjacentPairs) {
  const Scratch scratch;
  Model model(small_llama(), 3);
  save_gguf(scratch.path("m.gguf"), model, small_tokenizer(), "f32");
  const GgufFile file(scratch.path("m.gguf"));
  const auto parameter = [&](const std::string& name) -> const Tensor& {
    for (std::size_t i = 0; i < model.infos().size(); ++i)
      if (model.infos()[i].name == name) return model.parameters()[i];
    throw std::logic_error(name);
  };
  float row[64];
  const auto expect_row = [&](const char* tensor, std::int64_t r, const char* name, std::int64_t column) {
    file->read_rows(*file->find_tensor(tensor), r, 1, row);
    const Tensor& ours = parameter(name);
    for (std::int64_t j = 0; j < 64; ++j) ASSERT_EQ(row[j], ours.data()[j * ours.shape()[1] + column]) << tensor;
  };
  expect_row("blk.1.attn_q.weight", 0, "layers.1.wq", 0);
  expect_row("blk.1.attn_q.weight", 1, "layers.1.wq", 8);  // the other half of pair 0, heads of 16
  expect_row("blk.1.attn_q.weight", 2, "layers.1.wq", 1);
  expect_row("blk.1.attn_q.weight", 16 + 15, "layers.1.wq", 16 + 15);
  expect_row("blk.1.attn_k.weight", 16 + 3, "layers.1.wk", 16 + 9);
  expect_row("blk.1.attn_v.weight", 3, "layers.1.wv", 3);  // values are not rotated
}

TEST(GgufModel, ConfigurationsThatGgufCannotExpressAreRefused) {
  const Scratch scratch;
  const auto refused = [&](const Model& model, const Tokenizer& tokenizer, const std::string& type) {
    EXPECT_THROW(save_gguf(scratch.path("m.gguf"), model, tokenizer, type), std::invalid_argument);
    EXPECT_EQ(scratch.entries(), 0);
  };
  ModelConfig andrea = preset("andrea-12m");
  andrea.n_layer = 1;
  andrea.d_model = 24;
  andrea.vocab_size = 300;
  refused(Model(andrea.resolved()), small_tokenizer(), "f32");
  const Model llama(small_llama(), 3);
  refused(llama, small_tokenizer(), "q4_k");
  refused(llama, small_tokenizer(), "int8");
  TokenizerData data = small_tokenizer().data();
  data.patterns = {"[a-z]+"};
  refused(llama, Tokenizer::from_data(data), "f32");
  ModelConfig odd = small_llama();
  odd.d_ff = 97;
  refused(Model(odd), small_tokenizer(), "q8_0");
  ModelConfig narrow = small_llama();
  narrow.vocab_size = 260;
  refused(Model(narrow), small_tokenizer(), "f32");
}

// A tiny llama with a scored tokenizer, byte by byte.
struct Tiny {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types{2, 3, 3};
  GgufBytes keys = GgufBytes();

  Tiny() {
    static constexpr char kDigits[] = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; ++b) {
      tokens.push_back(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">");
      types.push_back(6);
    }
    for (const char* text : {"\xE2\x96\x81", "a",
                             "\xE2\x96\x81"
                             "a",
                             "b"}) {
      tokens.emplace_back(text);
      types.push_back(1);
    }
  }
  std::string bytes(const std::string& leave_out = "", const std::string& architecture = "llama") const {
    GgufBytes b = keys;
    const auto wanted = [&](const std::string& name) { return name != leave_out; };
    b.string("general.architecture", architecture);
    for (const auto& [name, value] :
         std::initializer_list<std::pair<const char*, std::uint32_t>>{{"block_count", 1},
                                                                      {"context_length", 16},
                                                                      {"embedding_length", 8},
                                                                      {"feed_forward_length", 4},
                                                                      {"attention.head_count", 2}})
      if (wanted(name)) b.u32("llama." + std::string(name), value);
    if (wanted("eps")) b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    b.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
    if (wanted("scores")) {
      std::vector<float> scores(tokens.size());
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
      b.array<float>("tokenizer.ggml.scores", 6, scores);
    }
    b.array<std::int32_t>("tokenizer.ggml.token_type", 5, types);
    const auto tensor = [&](const std::string& name, const std::vector<std::uint64_t>& dims) {
      std::uint64_t size = 4;
      for (const std::uint64_t d : dims) size *= d;
      if (wanted(name)) b.tensor(name, dims, 0, std::string(size, '\0'));
    };
    tensor("token_embd.weight", {8, tokens.size()});
    tensor("output_norm.weight", {8});
    for (const char* name : {"attn_norm", "ffn_norm"}) tensor("blk.0." + std::string(name) + ".weight", {8});
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
      tensor("blk.0." + std::string(name) + ".weight", {8, 8});
    for (const char* name : {"ffn_gate", "ffn_up"}) tensor("blk.0." + std::string(name) + ".weight", {8, 4});
    tensor("blk.0.ffn_down.weight", {4, 8});
    if (leave_out == "an extra") b.tensor("extra", {1}, 0, "0000");
    return b.bytes();
  }
};

// Reads everything: configuration, parameters, tokenizer.
void load(const std::string& bytes) {
  const auto source = open_gguf("f.gguf", std::as_bytes(std::span(bytes)));
  source->tokenizer();
  model_of(*source);
}

void expect_refused(const std::string& bytes, const std::string& reason) {
  try {
    load(bytes);
    ADD_FAILURE() << "accepted, expected: " << reason;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

TEST(GgufModel, AScoredTokenizer) {
  const Tiny tiny;
  const std::string bytes = tiny.bytes();
  const auto source = open_gguf("f.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_EQ(source->format(), "GGUF v3 llama");
  EXPECT_TRUE(source->config().tied_head);
  EXPECT_EQ(source->config().rope_theta, 10000);
  const Tokenizer tokenizer = source->tokenizer();
  EXPECT_EQ(tokenizer.size(), 263);
  EXPECT_EQ(tokenizer.begin_token(), 1);
  EXPECT_EQ(tokenizer.end_token(), 2);
  const std::int32_t space = 259, a = 260, space_a = 261, b = 262;
  EXPECT_THAT(tokenizer.encode("a"), ElementsAre(space_a));  // a space is prepended
  EXPECT_THAT(tokenizer.encode("ba a"), ElementsAre(space, b, a, space_a));
  EXPECT_THAT(tokenizer.encode("a</s>a", SpecialTokens::as_ids), ElementsAre(space_a, 2, space_a));
  EXPECT_THAT(tokenizer.encode("\n"), ElementsAre(space, 3 + 10));
  EXPECT_EQ(tokenizer.decode({space_a, b, 3 + 10}), "ab\n");
  for (const std::string text : {"a b", " a", "", "z\xC3\xA9\xFF"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(GgufModel, InconsistentFilesAreRefused) {
  load(Tiny().bytes());
  expect_refused(Tiny().bytes("", "mamba"), "supported architectures are gpt2, qwen3, qwen2 and llama; found 'mamba'");
  expect_refused(Tiny().bytes("block_count"), "key 'llama.block_count': is missing");
  expect_refused(Tiny().bytes("eps"), "is missing");
  expect_refused(Tiny().bytes("scores"), "is missing");
  expect_refused(Tiny().bytes("blk.0.ffn_up.weight"), "tensor 'blk.0.ffn_up.weight': is missing");
  expect_refused(Tiny().bytes("an extra"), "tensor 'extra': is not a parameter of this configuration");
  const auto with = [](auto change) {
    Tiny tiny;
    change(tiny);
    return tiny.bytes();
  };
  expect_refused(with([](Tiny& t) { t.keys.u32("llama.attention.head_count_kv", 4); }), "multiple of n_kv_head");
  expect_refused(with([](Tiny& t) { t.keys.u32("llama.attention.head_count_kv", 1); }),
                 "expected [8, 4]; found [8, 8]");
  expect_refused(with([](Tiny& t) { t.keys.u32("llama.rope.dimension_count", 2); }), "must be the size of a head");
  expect_refused(with([](Tiny& t) { t.keys.string("llama.rope.scaling.type", "yarn"); }), "found 'yarn'");
  expect_refused(with([](Tiny& t) { t.keys.u32("llama.expert_count", 8); }), "llama.expert_count");
  expect_refused(with([](Tiny& t) { t.keys.f32("llama.logit_scale", 8); }), "'llama.logit_scale': is not supported");
  expect_refused(with([](Tiny& t) { t.keys.u32("llama.vocab_size", 9); }), "must be the number of tokens, 263");
  expect_refused(with([](Tiny& t) { t.keys.u32("tokenizer.ggml.eos_token_id", 263); }), "found 263");
  expect_refused(with([](Tiny& t) { t.keys.boolean("tokenizer.ggml.add_eos_token", true); }), "not supported");
  expect_refused(with([](Tiny& t) { t.types.pop_back(); }), "one for each of the 263 tokens");
  expect_refused(with([](Tiny& t) { t.types[260] = 7; }), "expected a type from 1 to 6; found 7");
  expect_refused(with([](Tiny& t) { t.tokens[3] = "<0x-1>"; }), "a byte token must be");
  expect_refused(with([](Tiny& t) { t.tokens[3] = "<0x01>"; }), "occurs twice");
}

TEST(GgufModel, RopeFrequencyFactors) {
  Tiny tiny;
  tiny.keys.tensor("rope_freqs.weight", {2}, 0, GgufBytes::raw(1.0f) + GgufBytes::raw(4.0f));
  std::string bytes = tiny.bytes();
  const auto source = open_gguf("f.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_THAT(source->config().rope_scaling.frequency_factors, ElementsAre(1.0, 4.0));
  EXPECT_NEAR(rotary_frequencies(source->config())[1], 0.01 / 4, 1e-12);
  Tiny linear;
  linear.keys.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 2);
  bytes = linear.bytes();
  EXPECT_EQ(open_gguf("f.gguf", std::as_bytes(std::span(bytes)))->config().rope_scaling.factor, 2);
  Tiny wrong;
  wrong.keys.tensor("rope_freqs.weight", {3}, 0, std::string(12, '\0'));
  expect_refused(wrong.bytes(), "expected 2 numbers; found 3 x 1");
  Tiny zero;
  zero.keys.tensor("rope_freqs.weight", {2}, 0, std::string(8, '\0'));
  expect_refused(zero.bytes(), "frequency_factors");
}

TEST(GgufModel, SplitsByName) {
  const Scratch scratch;
  const Model model(small_llama(), 3);
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    TokenizerData data = small_tokenizer().data();
    data.patterns = gguf_split(name)->patterns;
    data.ignore_merges = gguf_split(name)->ignore_merges;
    save_gguf(scratch.path("m.gguf"), model, Tokenizer::from_data(data), "f32");
    EXPECT_EQ(GgufFile(scratch.path("m.gguf"))->string("tokenizer.ggml.pre"), name);
    const TokenizerData back = open_gguf(scratch.path("m.gguf"))->tokenizer().data();
    EXPECT_EQ(back.patterns, data.patterns);
    EXPECT_EQ(back.ignore_merges, data.ignore_merges);
    EXPECT_EQ(back.merges.size(), data.merges.size());
    EXPECT_EQ(back.begin_token, -1);
    EXPECT_EQ(back.end_token, 256);
  }
  std::string bytes = read_all(scratch.path("m.gguf"));
  const std::size_t at = bytes.find("qwen2", bytes.find("tokenizer.ggml.pre"));
  bytes.replace(at, 5, "qwen9");
  expect_refused(bytes, "found 'qwen9'");
}

// Files written by the Python package `gguf`, and PyTorch's logits (scripts/make_gguf_golden.py).
TEST(GgufModel, LogitsMatchPyTorch) {
  for (const char* name : {"llama", "gpt2"}) {
    const std::string path = std::string(QKV_SOURCE_DIR) + "/tests/formats/golden/gguf_" + name;
    const auto source = open_gguf(path + ".gguf");
    Model model = model_of(*source);
    const Tensor expected = load_npy(path + "_logits.npy");  // [24, 48]
    std::vector<std::int32_t> tokens;
    for (std::int32_t t = 0; t < 24; ++t) tokens.push_back(t * 7 % 48);
    Batch batch;
    batch.batch = 1;
    batch.ctx = 24;
    batch.tokens = tokens;
    const Tensor found = model.logits(batch);  // [1, 24, 48]
    ASSERT_EQ(found.size(), expected.size());
    double largest = 0;
    for (std::int64_t i = 0; i < expected.size(); ++i)
      largest = std::max(largest, std::fabs(double{expected.data()[i]}));
    EXPECT_GT(largest, 1) << name;
    for (std::int64_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found.data()[i], expected.data()[i], 1e-5 * largest) << name << " " << i;
    EXPECT_THAT(source->tokenizer().encode("!\"#"), ElementsAre(0, 46));
  }
}

TEST(GgufModel, TheSharedCollection) {
  const char* cases = std::getenv("QKV_CASES_DIR");
  ASSERT_TRUE(cases) << "QKV_CASES_DIR expected a folder of cases; found nothing";
  const std::string folder = cases + std::string("/malformed/");
  int count = 0;
  for (const auto& item : nlohmann::json::parse(read_all(folder + "index.json"))) {
    const std::string name = item["file"], expect = item["expect"];
    if (!name.ends_with(".gguf") || (item["layer"] == "container" && expect != "reject")) continue;
    ++count;
    std::string reason;
    try {
      const auto source = open_gguf(folder + name);
      source->tokenizer();
      model_of(*source);
    } catch (const FileError& error) {
      reason = error.what();
    }
    EXPECT_EQ(reason.empty(), expect == "accept") << name << ": " << item["reason"] << " " << reason;
  }
  EXPECT_GT(count, 45);
}

TEST(GgufModel, VerifyDistinguishesContainersFromModels) {
  const Scratch scratch;
  EXPECT_THAT(verify_path(scratch.file("a", Tiny().bytes())), HasSubstr("GGUF v3 llama model: "));
  EXPECT_THAT(
      verify_path(scratch.file("b", GgufBytes().string("general.architecture", "llama").bytes())),
      HasSubstr("GGUF v3 container without a model of the families gpt2, qwen3, qwen2 and llama: 1 keys, 0 tensors"));
  EXPECT_THAT(verify_path(scratch.file("c", Tiny().bytes("", "mamba"))), HasSubstr("container"));
  EXPECT_THROW(verify_path(scratch.file("d", Tiny().bytes("blk.0.ffn_up.weight"))), FileError);
  Tiny broken;
  broken.keys.tensor("blk.0.attn_q.bias", {8}, 0, GgufBytes::raw(std::nanf("")) + std::string(28, '\0'));
  EXPECT_THROW(verify_path(scratch.file("e", broken.bytes())), FileError);  // not a number
}

}  // namespace
}  // namespace qkv
