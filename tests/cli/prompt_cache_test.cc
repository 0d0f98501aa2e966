// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "generate_command.h"

namespace {

using qkv_test::Finished;
using qkv_test::GenerateCommand;
using testing::HasSubstr;

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(GenerateCommand, APromptCacheIsCreatedUsedAndExtended) {
  const std::vector<std::string> with = {"-n", "10", "--temp", "2", "--prompt-cache", path("cache")};
  const auto plain = [&](const std::string& prompt) { return generate({"-p", prompt, "-n", "10", "--temp", "2"}).out; };
  const auto cached = [&](const std::string& prompt) { return generate(joined({"-p", prompt}, with)); };
  const auto expect = [&](const std::string& prompt, const std::string& note) {
    const Finished finished = cached(prompt);
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("prompt cache: " + note));
    EXPECT_EQ(finished.out, plain(prompt)) << prompt;
  };
  expect("In the beginning", "0 tokens from the file, 16 evaluated, saved");
  expect("In the beginning", "15 tokens from the file, 1 evaluated, ");
  expect("In the beginning was", "16 tokens from the file, 4 evaluated, saved");
  expect("In the", "5 tokens from the file, 1 evaluated, ");  // the longer one stays in the file
  expect("In the beginning was", "19 tokens from the file, 1 evaluated, ");
  expect("In a word", "3 tokens from the file, 6 evaluated, saved");
  expect("In the beginning", "3 tokens from the file, 13 evaluated, saved");
  const Finished samples = generate(joined(joined({"-p", "In the beginning"}, with), {"--samples", "2", "--json"}));
  EXPECT_EQ(samples.out,
            generate({"-p", "In the beginning", "-n", "10", "--temp", "2", "--samples", "2", "--json"}).out);
}

TEST_F(GenerateCommand, AMismatchedPromptCacheIsRefused) {
  const std::vector<std::string> with = {"-p", "abc", "-n", "1", "--prompt-cache", path("cache")};
  ASSERT_EQ(generate(with).status, 0);
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const Finished finished = generate(joined(with, more));
    EXPECT_EQ(finished.status, 1) << why;
    EXPECT_EQ(finished.out, "");
    EXPECT_THAT(finished.err, testing::MatchesRegex("qkv: [^\n]*cache[^\n]*\n"));
    EXPECT_THAT(finished.err, HasSubstr(why));
  };
  refused({"--cache-type", "q8_0"}, "cache type");
  save("model", 64, [](qkv::Model& model) { model.change_parameters()[0].data()[0] += 1; });
  refused({}, "another model");
  std::ofstream(path("cache"), std::ios::binary | std::ios::app) << "x";
  refused({}, "damaged");
  std::ofstream(path("cache"), std::ios::binary) << std::string(100, 'x');
  refused({}, "QKVPROMP");
  EXPECT_EQ(generate({"--prompts", "-", "--prompt-cache", path("cache")}, "a\n").status, 2);
  EXPECT_EQ(generate({"-p", "a", "--prompt-cache", path("")}).status, 1);
}

TEST_F(GenerateCommand, GeneratesWithEveryCacheType) {
  const auto with = [&](const std::string& type) {
    return generate({"-p", "abc", "-n", "10", "--temp", "0", "--cache-type", type});
  };
  EXPECT_EQ(with("f32").out, generate({"-p", "abc", "-n", "10", "--temp", "0", "-t", "1"}).out);
  for (const char* type : {"bf16", "f16", "q8_0"}) {
    EXPECT_EQ(with(type).status, 0) << type;
    EXPECT_THAT(with(type).err, HasSubstr("generation: 10 tokens"));
  }
  EXPECT_EQ(with("q9").status, 2);
}

}  // namespace
