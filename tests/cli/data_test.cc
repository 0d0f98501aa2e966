// SPDX-License-Identifier: Apache-2.0
// qkv tokenize and qkv eval on the command line, and training on a token file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "process.h"
#include "qkv/dataset.h"
#include "qkv/model_file.h"

namespace {

namespace fs = std::filesystem;
using qkv_test::Finished;
using qkv_test::run_qkv;
using qkv_test::run_shell;
using testing::HasSubstr;

class DataCommands : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(testing::TempDir()) / ("qkv_data_" + std::to_string(getpid()));
    fs::create_directory(directory_);
    std::string text;
    for (int i = 0; text.size() < 20000; i = (i * 5 + 3) % 997)
      text += "the word " + std::to_string(i) + " was said.\n";
    write("text.txt", text);
    write("more.jsonl", "{\"text\": \"one\", \"body\": \"three\"}\n{\"text\": \"two\", \"body\": \"four\"}\n");
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  Finished tokenize(std::vector<std::string> arguments, const std::string& input = "") const {
    arguments.insert(arguments.begin(), {"tokenize", "--out", path("tokens.bin")});
    return run_qkv(arguments, input);
  }
  std::string training_text() const {
    const qkv::TokenDataset data = qkv::TokenDataset::open(path("tokens.bin"));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(data.training().size()));
    data.training().read(0, ids);
    return data.tokenizer()->decode(ids);
  }
  void expect_one_line(const Finished& done, int status, const std::string& says) const {
    EXPECT_EQ(done.status, status) << done.err;
    EXPECT_THAT(done.err, testing::StartsWith("qkv: "));
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    EXPECT_THAT(done.err, HasSubstr(says));
  }
  // A model with random weights over bytes.
  void save_model() const {
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.d_model = 16;
    config.ctx_len = 24;
    config.vocab_size = qkv::Tokenizer::bytes().size();
    qkv::save_model(path("model"), qkv::Model(config, 1), qkv::Tokenizer::bytes());
  }

  fs::path directory_;
};

TEST_F(DataCommands, InputsAreNotOverwritten) {
  const auto content = [&](const std::string& name) {
    std::ifstream file(path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string text = content("text.txt");
  fs::create_symlink(path("text.txt"), path("link.txt"));
  for (const std::string& out :
       {path("text.txt"), path("link.txt"), path("../") + directory_.filename().string() + "/text.txt"})
    for (const std::string& data : {path("text.txt"), directory_.string()})
      expect_one_line(run_qkv({"tokenize", "--data", data, "--tokenizer", "bytes", "--out", out}), 2,
                      "would overwrite the input");
  expect_one_line(tokenize({"--data", path("text.txt"), "--tokenizer", "bytes", "--tokenizer-out", path("text.txt")}),
                  2, "would overwrite the input");
  expect_one_line(tokenize({"--data", path("text.txt"), "--tokenizer", "bytes", "--tokenizer-out", path("tokens.bin")}),
                  2, "--out and --tokenizer-out are the same file");
  EXPECT_EQ(content("text.txt"), text);
  EXPECT_FALSE(fs::exists(path("tokens.bin")));
  // Overwriting its own earlier output is fine, as is writing next to the texts of its directory.
  ASSERT_EQ(tokenize({"--data", path("text.txt"), "--tokenizer", "bytes"}).status, 0);
  ASSERT_EQ(tokenize({"--data", path("text.txt"), "--tokenizer", "bytes"}).status, 0);
  save_model();
  expect_one_line(run_qkv({"convert", path("model"), path("model")}), 2, "would overwrite the input");
  expect_one_line(run_qkv({"inspect", "-m", path("model"), "-f", path("text.txt"), "--html", path("text.txt")}), 2,
                  "would overwrite the input");
  EXPECT_EQ(content("text.txt"), text);
}

TEST_F(DataCommands, ABiasForAnUnknownTokenIsRefused) {
  save_model();
  const auto generate = [&](const std::string& bias) {
    return run_qkv({"generate", "-m", path("model"), "-p", "a", "-n", "2", "--logit-bias", bias});
  };
  EXPECT_EQ(generate("256-1").status, 0);
  expect_one_line(generate("257-1"), 2, "--logit-bias expected a token id below 257; found 257");
}

TEST_F(DataCommands, TokenizeReadsFilesDirectoriesJsonLinesAndStandardInput) {
  const Finished files =
      tokenize({"--data", path("more.jsonl"), path("text.txt"), "--tokenizer", "bytes", "--val-fraction", "0"});
  ASSERT_EQ(files.status, 0) << files.err;
  EXPECT_THAT(files.out, HasSubstr("files: 2, documents: 3"));
  EXPECT_THAT(files.out, HasSubstr("MB/s"));
  const std::string both = training_text();
  EXPECT_THAT(both, testing::StartsWith("one<|endoftext|>two<|endoftext|>the word 0 was said.\n"));
  const Finished again = tokenize({"--data", directory_.string(), "--tokenizer", "bytes", "--val-fraction", "0"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err,
              testing::MatchesRegex("qkv: warning: 1 file is skipped: [^\n]*tokens.bin is a token file, not text\n"));
  fs::create_directory(directory_ / "in");
  fs::rename(path("more.jsonl"), path("in/more.jsonl"));
  fs::rename(path("text.txt"), path("in/text.txt"));
  ASSERT_EQ(tokenize({"--data", path("in"), "--tokenizer", "bytes", "--val-fraction", "0"}).status, 0);
  EXPECT_EQ(training_text(), both);
  ASSERT_EQ(
      tokenize({"--data", path("in/more.jsonl"), "--field", "body", "--tokenizer", "bytes", "--val-fraction", "0"})
          .status,
      0);
  EXPECT_EQ(training_text(), "three<|endoftext|>four");
  ASSERT_EQ(tokenize({"--data", "-", "--tokenizer", "bytes", "--val-fraction", "0"}, "from a pipe\n").status, 0);
  EXPECT_EQ(training_text(), "from a pipe\n");
  ASSERT_EQ(tokenize({"--data", "-", "--format", "jsonl", "--tokenizer", "bytes", "--val-fraction", "0"},
                     "{\"text\": \"from a pipe\"}\n")
                .status,
            0);
  EXPECT_EQ(training_text(), "from a pipe");
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_))  // no temporary file is left
    EXPECT_TRUE(entry.path().filename() == "in" || entry.path().filename() == "tokens.bin") << entry.path();
}

TEST_F(DataCommands, SeparatorsAndBadLinesAreReported) {
  write("stories.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\n");
  const std::vector<std::string> bytes = {"--tokenizer", "bytes", "--val-fraction", "0"};
  const auto said = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), bytes.begin(), bytes.end());
    return tokenize(arguments);
  };
  const Finished letters = said({"--data", path("stories.txt")});
  EXPECT_EQ(letters.status, 0) << letters.err;
  EXPECT_THAT(letters.err, HasSubstr("--document-separator '<|endoftext|>'"));
  EXPECT_THAT(letters.out, HasSubstr("documents: 1"));
  const Finished split = said({"--data", path("stories.txt"), "--document-separator", "<|endoftext|>"});
  EXPECT_EQ(split.err, "");
  EXPECT_THAT(split.out, HasSubstr("documents: 2"));
  EXPECT_EQ(training_text(), "one\n<|endoftext|>two\n");
  write("bad.jsonl", "{\"text\": \"one\"}\nnonsense\n{\"text\": \"two\"}\n");
  expect_one_line(said({"--data", path("bad.jsonl")}), 1, "bad.jsonl: at byte 17: line 2: the line is not valid JSON");
  const Finished skipped = said({"--data", path("bad.jsonl"), "--skip-bad-lines"});
  expect_one_line(skipped, 0, "1 line is skipped; the first: " + path("bad.jsonl") + ": at byte 17: line 2");
  EXPECT_THAT(skipped.out, HasSubstr("documents: 2"));
  expect_one_line(tokenize({"--data", "-", "--tokenizer", "bytes"}, std::string("a\0b\0c\0", 6)), 1, "is UTF-16 text");
}

TEST_F(DataCommands, TokenizeTrainsAndSavesItsTokenizer) {
  const Finished done =
      tokenize({"--data", path("text.txt"), "--tokenizer", "bpe:300", "--tokenizer-out", path("t.json"), "-t", "2"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("tokenizer: BPE, 300 tokens"));
  const qkv::TokenDataset data = qkv::TokenDataset::open(path("tokens.bin"));
  EXPECT_EQ(data.tokenizer()->json(), qkv::Tokenizer::load(path("t.json")).json());
  EXPECT_EQ(data.vocab_size(), 300);
  EXPECT_GT(data.validation().size(), 0);
  std::ifstream first_file(path("tokens.bin"), std::ios::binary);
  const std::string first{std::istreambuf_iterator<char>(first_file), {}};
  ASSERT_EQ(tokenize({"--data", path("text.txt"), "--tokenizer", path("t.json"), "-t", "1"}).status, 0);
  std::ifstream second_file(path("tokens.bin"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(second_file), {}), first);
}

TEST_F(DataCommands, TokenizeReportsErrors) {
  expect_one_line(tokenize({"--data", path("missing"), "--tokenizer", "bytes"}), 1, "missing");
  expect_one_line(tokenize({"--data", path("text.txt"), "--tokenizer", "bpe:12"}), 2, "bpe:12");
  expect_one_line(tokenize({"--data", path("text.txt")}), 2, "--tokenizer");
  expect_one_line(tokenize({"--data", path("text.txt"), "--tokenizer", path("none.json")}), 1, "none.json");
  expect_one_line(tokenize({"--data", path("more.jsonl"), "--field", "title", "--tokenizer", "bytes"}), 1, "title");
  expect_one_line(tokenize({"--data", "-", "--tokenizer", "bytes"}, ""), 1, "standard input");
  EXPECT_FALSE(fs::exists(path("tokens.bin")));
}

TEST_F(DataCommands, TrainingOnATokenFileMatchesTrainingOnItsText) {
  const std::vector<std::string> small = {"--n-layer", "1",  "--n-head",          "2", "--d-model",       "16",
                                          "--ctx-len", "16", "--batch-size",      "2", "--steps",         "6",
                                          "-t",        "1",  "--sample-interval", "0", "--eval-interval", "3"};
  const auto train = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "train");
    arguments.insert(arguments.end(), small.begin(), small.end());
    return run_qkv(arguments);
  };
  ASSERT_EQ(tokenize({"--data", path("text.txt"), "--tokenizer", "bpe:300"}).status, 0);
  const Finished text = train({"--data", path("text.txt"), "--tokenizer", "bpe:300", "--out", path("a")});
  ASSERT_EQ(text.status, 0) << text.err;
  const Finished stopped = train({"--data", path("tokens.bin"), "--out", path("b"), "--stop-after", "4"});
  ASSERT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_TRUE(fs::is_symlink(path("b/tokens.bin")));
  fs::rename(path("tokens.bin"), path("moved.bin"));
  expect_one_line(train({"--out", path("b"), "--resume"}), 1, "does not exist");
  const Finished resumed = train({"--out", path("b"), "--resume", "--data", path("moved.bin")});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  expect_one_line(run_qkv({"train", "--out", path("b"), "--resume", "--steps", "3"}), 2, "is less than the");
  EXPECT_EQ(run_shell("cmp " + path("a/model.safetensors") + " " + path("b/model.safetensors")).status, 0);
  expect_one_line(train({"--data", path("moved.bin"), "--out", path("c"), "--tokenizer", "bytes"}), 2, "--tokenizer");
  expect_one_line(train({"--data", path("moved.bin"), path("text.txt"), "--out", path("c")}), 2,
                  "must be the only one");
}

TEST_F(DataCommands, EvalReportsLossPerplexityAndBitsPerByte) {
  save_model();
  const auto eval = [&](std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"eval", "-m", path("model")});
    return run_qkv(arguments, input);
  };
  const Finished json = eval({"--data", path("text.txt"), "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  const auto found = nlohmann::json::parse(json.out);
  const double loss = found["loss"];
  EXPECT_NEAR(loss, std::log(257), 0.2);  // a model with random weights predicts nothing
  EXPECT_NEAR(found["perplexity"], std::exp(loss), 1e-6 * std::exp(loss));
  EXPECT_NEAR(found["bits_per_byte"], loss / std::log(2), 1e-9);  // one token per byte
  const auto size = static_cast<std::int64_t>(fs::file_size(path("text.txt")));
  EXPECT_EQ(found["bytes"], size);
  EXPECT_EQ(found["predicted"], size - 1);
  const Finished words = eval({"--data", path("text.txt")});
  EXPECT_THAT(words.out, HasSubstr("bits per byte"));
  EXPECT_THAT(words.out, HasSubstr("perplexity"));
  EXPECT_EQ(nlohmann::json::parse(eval({"--data", "-", "--json"}, "some text").out)["bytes"], 9);
  // A token file, the whole of it and its splits; and overlapping windows.
  ASSERT_EQ(tokenize({"--data", path("text.txt"), "--tokenizer", "bytes", "--val-fraction", "0.25"}).status, 0);
  const auto part = [&](const std::string& name) {
    return nlohmann::json::parse(eval({"--data", path("tokens.bin"), "--part", name, "--json"}).out);
  };
  const auto all = part("all"), training = part("training"), validation = part("validation");
  EXPECT_EQ(all["bytes"], size);
  EXPECT_EQ(training["predicted"].get<std::int64_t>() + validation["predicted"].get<std::int64_t>(), size - 2);
  EXPECT_LT(validation["bytes"], training["bytes"]);
  const auto overlapping = nlohmann::json::parse(eval({"--data", path("text.txt"), "--stride", "7", "--json"}).out);
  EXPECT_EQ(overlapping["predicted"], size - 1);
  EXPECT_NE(overlapping["loss"], found["loss"]);
}

TEST_F(DataCommands, EvalReportsErrors) {
  save_model();
  const auto eval = [&](std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"eval", "-m", path("model")});
    return run_qkv(arguments, input);
  };
  expect_one_line(eval({"--data", path("missing")}), 1, "missing");
  expect_one_line(eval({"--data", "-"}, "x"), 1, "two tokens");
  expect_one_line(eval({"--data", path("text.txt"), "--part", "training"}), 2, "--part");
  expect_one_line(eval({"--data", path("text.txt"), "--ctx-len", "25"}), 1, "24");
  expect_one_line(eval({"--data", path("text.txt"), "--stride", "0"}), 2, "--stride");
  ASSERT_EQ(tokenize({"--data", path("text.txt"), "--tokenizer", "bpe:270"}).status, 0);
  expect_one_line(eval({"--data", path("tokens.bin")}), 1, "a different tokenizer");
}

}  // namespace
