// SPDX-License-Identifier: Apache-2.0
// NaN and infinity end the command that meets them with the name of the parameter or the cache (B7, B8 of the reports).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "generate_command.h"

namespace {

using qkv_test::Finished;
using qkv_test::run_qkv;
using testing::HasSubstr;

class NonFinite : public qkv_test::GenerateCommand {
 protected:
  void SetUp() override {
    GenerateCommand::SetUp();
    std::ofstream(path("text.txt")) << "some text of a few words, and a few more of them\n";
  }
  // A model whose first W_K has the value.
  std::string broken(const std::string& name, float value, std::size_t at = 5) {
    save(name, 64, [&](qkv::Model& model) {
      for (std::size_t i = 0; i < model.infos().size(); ++i)
        if (model.infos()[i].name == "layers.0.wk") model.change_parameters()[i].data()[at] = value;
    });
    return path(name);
  }
  void expect_refused(const std::vector<std::string>& arguments, const std::string& says,
                      const std::string& input = "") {
    const Finished done = run_qkv(arguments, input);
    EXPECT_EQ(done.status, 1) << arguments[0] << done.err;
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    EXPECT_THAT(done.err, HasSubstr(says)) << arguments[0];
  }
};

TEST_F(NonFinite, AParameterIsNamedByEveryCommand) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const std::string model = broken("nan", value);
    const std::string says = model + ": parameter 'layers.0.wk': element 5 is not finite";
    expect_refused({"eval", "-m", model, "--data", path("text.txt"), "--json"}, says);
    expect_refused({"inspect", "-m", model, "-p", "text"}, says);
    expect_refused({"inspect", "-m", model, "--scores"}, says);
    expect_refused({"generate", "-m", model, "-p", "text", "-n", "3"}, says);
    expect_refused({"chat", "-m", model, "--template", "chatml"}, says, "hello\n");
    expect_refused({"convert", model, path("out")}, says);
    expect_refused({"verify", model}, says);
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  }
}

// Finite weights whose products are not.
TEST_F(NonFinite, WhatIsTooLargeIsSaid) {
  const std::string model = broken("large", 0);
  save("large", 64, [](qkv::Model& changed) {
    auto parameters = changed.change_parameters();
    for (std::size_t i = 0; i < changed.infos().size(); ++i)
      if (changed.infos()[i].name == "head") std::fill_n(parameters[i].data(), parameters[i].size(), 3e38f);
  });
  expect_refused({"eval", "-m", model, "--data", path("text.txt")}, "all parameters are finite");
  expect_refused({"inspect", "-m", model, "-p", "text"}, "all parameters are finite");
  expect_refused({"generate", "-m", model, "-p", "text", "-n", "3"}, "all parameters and the KV cache are finite");
}

TEST_F(NonFinite, KeysThatACacheTypeCannotHold) {
  save("keys", 64, [](qkv::Model& changed) {
    auto parameters = changed.change_parameters();
    for (std::size_t i = 0; i < changed.infos().size(); ++i)
      if (changed.infos()[i].name == "layers.0.wk")
        for (std::int64_t j = 0; j < parameters[i].size(); ++j) parameters[i].data()[j] *= 1e7f;
  });
  const std::vector<std::string> generate = {"generate", "-m", path("keys"), "-p", "text", "-n", "3"};
  for (const char* type : {"f32", "bf16", "f16"}) {
    std::vector<std::string> with = generate;
    with.insert(with.end(), {"--cache-type", type});
    if (std::string(type) == "f16")
      expect_refused(with, "expected keys below 65520, which a cache of type f16 can hold");
    else
      EXPECT_EQ(run_qkv(with).status, 0) << type;
  }
}

}  // namespace
