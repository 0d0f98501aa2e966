// SPDX-License-Identifier: Apache-2.0
// A small model on disk for tests of the commands that generate text.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "process.h"
#include "qkv/model_file.h"

namespace qkv_test {

// A model with random weights over bytes, in its own directory.
class GenerateCommand : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) / ("qkv_generate_" + std::to_string(getpid()));
    save("model", 64, [](qkv::Model&) {});
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  template <class Change>
  void save(const std::string& name, std::int64_t ctx_len, const Change& change) {
    const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
    qkv::ModelConfig config;
    config.n_layer = 1;
    config.n_head = 2;
    config.d_model = 32;
    config.vocab_size = tokenizer.size();
    config.ctx_len = ctx_len;
    qkv::Model model(config, 1);
    change(model);
    qkv::save_model(path(name), model, tokenizer);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  Finished generate(std::vector<std::string> arguments, const std::string& input = "") const {
    arguments.insert(arguments.begin(), {"generate", "-m", path("model")});
    return run_qkv(arguments, input);
  }

  std::filesystem::path directory_;
};

}  // namespace qkv_test
