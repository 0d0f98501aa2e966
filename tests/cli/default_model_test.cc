// SPDX-License-Identifier: Apache-2.0
// The model that `qkv train` makes by default can be exported to the formats of other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "process.h"
#include "qkv/model_file.h"

namespace {

namespace fs = std::filesystem;
using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class DefaultModel : public testing::Test {
 protected:
  DefaultModel() {
    fs::create_directories(folder_);
    std::ofstream file(path("text.txt"));
    for (int i = 0; i < 3000; ++i) file << "line " << i * 7919 % 3000 << " of the text, caf\u00e9 and \u65e5\u672c\n";
  }
  ~DefaultModel() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Finished train(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"train",
                                       "--data",
                                       path("text.txt"),
                                       "--out",
                                       path(out),
                                       "--batch-size",
                                       "1",
                                       "--steps",
                                       "3",
                                       "--eval-interval",
                                       "0",
                                       "--threads",
                                       "2",
                                       "--sample-interval",
                                       "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_qkv(arguments);
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("qkv_default_" + std::to_string(getpid()));
};

// [16, vocab_size] for the first tokens of a text, after checking that the ids match those of `tokenizer`.
std::vector<float> logits_of(qkv::LoadedModel& loaded, const qkv::Tokenizer& tokenizer) {
  const std::string text =
      "line 17 of the text, caf\u00e9 and \u65e5\u672c\nand what was never seen: \xF0\x9F\x99\x82 QKV";
  std::vector<std::int32_t> ids = loaded.tokenizer.encode(text);
  EXPECT_EQ(ids, tokenizer.encode(text));
  EXPECT_EQ(loaded.tokenizer.decode(ids), text);
  ids.resize(16);
  qkv::Batch batch;
  batch.batch = 1;
  batch.ctx = 16;
  batch.tokens = ids;
  const qkv::Tensor logits = loaded.model.logits(batch);
  return {logits.data(), logits.data() + logits.size()};
}

TEST_F(DefaultModel, ExportsToHuggingFaceAndGguf) {
  for (const std::string tokenizer : {"bytes", "bpe:400"}) {
    SCOPED_TRACE(tokenizer);
    const std::string out = tokenizer == "bytes" ? "bytes" : "bpe";
    const Finished trained = train(out, {"--tokenizer", tokenizer});
    ASSERT_EQ(trained.status, 0) << trained.err;
    EXPECT_THAT(trained.out, HasSubstr("\nexports to: Hugging Face (llama), GGUF (llama)\n"));
    qkv::LoadedModel own = qkv::load_model(path(out));
    EXPECT_EQ(own.model.config().n_layer, 8);
    EXPECT_TRUE(own.model.config().final_norm && own.model.config().gated && own.model.config().tied_head);
    const std::vector<float> wanted = logits_of(own, own.tokenizer);
    for (const std::vector<std::string>& to :
         {std::vector<std::string>{path(out + "_hf"), "--to", "hf"}, {path(out + ".gguf"), "--type", "f32"}}) {
      SCOPED_TRACE(to[0]);
      std::vector<std::string> arguments{"convert", path(out)};
      arguments.insert(arguments.end(), to.begin(), to.end());
      const Finished converted = run_qkv(arguments);
      ASSERT_EQ(converted.status, 0) << converted.err;
      qkv::LoadedModel written = qkv::load_model(to[0]);
      EXPECT_EQ(logits_of(written, own.tokenizer), wanted);
    }
  }
}

TEST_F(DefaultModel, OptionsChangeItAndSizesFollow) {
  ASSERT_EQ(train("small", {"--n-layer", "1", "--n-head", "2", "--d-model", "64", "--ctx-len", "32"}).status, 0);
  EXPECT_EQ(qkv::load_config(path("small") + "/config.json").d_ff, qkv::gated_d_ff(64));
  ASSERT_EQ(train("relu", {"--n-layer", "1", "--n-head", "2", "--d-model", "64", "--activation", "relu"}).status, 0);
  EXPECT_EQ(qkv::load_config(path("relu") + "/config.json").d_ff, 256);
  // The same command resumes, whatever d_ff is derived from.
  const std::vector<std::string> shape{"--preset", "llama-135m", "--n-layer", "1",         "--n-head",
                                       "3",        "--d-model",  "48",        "--ctx-len", "32"};
  auto wide = shape, again = shape;
  wide.insert(wide.end(), {"--d-ff", "1536"});
  again.insert(again.end(), {"--resume", "--steps", "4"});
  ASSERT_EQ(train("wide", wide).status, 0);
  const Finished resumed = train("wide", again);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

TEST_F(DefaultModel, ObstaclesToAnExportAreListedOnce) {
  const Finished trained = train("andrea", {"--preset", "andrea-12m", "--n-layer", "1", "--n-head", "2", "--d-model",
                                            "32", "--ctx-len", "16", "--tokenizer", "harris:300"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out,
              HasSubstr("\nexports to: no other format\n  not to Hugging Face and GGUF: expected a model of"));
  const auto lists = AllOf(HasSubstr("embedding_norm true instead of false"), HasSubstr("gated false instead of true"),
                           HasSubstr("expected a byte or BPE tokenizer; found a Harris tokenizer"));
  EXPECT_THAT(trained.out, lists);
  for (const auto& [format, name] : {std::pair("hf", "Hugging Face directory"), std::pair("gguf", "GGUF file")}) {
    const Finished converted = run_qkv({"convert", path("andrea"), path("x"), "--to", format});
    EXPECT_EQ(converted.status, 2);
    EXPECT_THAT(converted.err,
                AllOf(lists, HasSubstr(std::string(" as a ") + name + ": expected a model"), Not(HasSubstr("["))));
    EXPECT_EQ(converted.err.find("embedding_norm"), converted.err.rfind("embedding_norm"));
    EXPECT_FALSE(fs::exists(path("x")));
  }
}

// Obstacles to an export are found without weights as well.
TEST(ExportFacts, NameTheFamilyAndEveryObstacle) {
  const qkv::Tokenizer bytes = qkv::Tokenizer::bytes();
  qkv::ModelConfig config = qkv::preset("gpt2-4m");
  for (const qkv::ExportFacts& facts : qkv::export_facts(config, bytes)) {
    EXPECT_EQ(facts.family, "gpt2");
    EXPECT_THAT(facts.obstacles, testing::IsEmpty());
  }
  config.softcap = 30;
  config.vocab_size = 100;
  const auto all = qkv::export_facts(config, bytes, {.end_tokens = {200}});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].format, "Hugging Face");
  EXPECT_EQ(all[1].format, "GGUF");
  for (const qkv::ExportFacts& facts : all) {
    EXPECT_EQ(facts.family, "");
    ASSERT_EQ(facts.obstacles.size(), 3u);
    EXPECT_THAT(facts.obstacles[0], HasSubstr("softcap 30.0 instead of 0.0"));
    EXPECT_THAT(facts.obstacles[1], HasSubstr("a tokenizer of at most vocab_size = 100 tokens; found 257"));
    EXPECT_THAT(facts.obstacles[2], HasSubstr("end tokens of the vocabulary, 0 to 99; found 200"));
  }
}

}  // namespace
