// SPDX-License-Identifier: Apache-2.0
#include "qkv/repetition.h"

#include <gtest/gtest.h>

#include <string>

namespace qkv {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Repetition, HandWorkedExamples) {
  EXPECT_EQ(repetition(""), 0);
  EXPECT_EQ(repetition(std::string(32, 'a')), 0);
  EXPECT_DOUBLE_EQ(repetition(std::string(33, 'a')), 32.0 / 33);  // the stretch at byte 1 also occurs at byte 0
  const std::string some = "0123456789abcdefghijklmnopqrstuv";    // 32 bytes
  EXPECT_DOUBLE_EQ(repetition(some + some), 0.5);
  EXPECT_DOUBLE_EQ(repetition(some + "-" + some), 32.0 / 65);
  EXPECT_DOUBLE_EQ(repetition(some + "-" + some.substr(1)), 0);  // 31 bytes are too few
  EXPECT_DOUBLE_EQ(repetition(some + "XY" + some + "XY" + some), (34.0 + 32) / 100);
}

TEST(Repetition, FindsLoops) {
  EXPECT_GT(repetition(repeated("the LORD, and ", 20)), 0.9);
  EXPECT_GT(repetition("In the beginning God created " + repeated("the children of the ", 12)), 0.7);
  EXPECT_GT(repetition(repeated("And he said unto them, Go ye into the land of Egypt, and dwell there. ", 4)), 0.7);
  EXPECT_GT(repetition(std::string(300, '\n')), 0.9);
  // A loop in which each round differs by a number, as collapsed models generate.
  std::string counted;
  for (int i = 1; i < 12; ++i) counted += "Num" + std::to_string(i) + ": And the LORD spake unto Moses, saying, ";
  EXPECT_GT(repetition(counted), kRepetitionThreshold);
}

TEST(Repetition, IsLowForOrdinaryText) {
  // Scripture is about as repetitive as ordinary text gets.
  EXPECT_LT(
      repetition("In the beginning God created the heaven and the earth. And the earth was without form, and void; "
                 "and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the "
                 "waters. And God said, Let there be light: and there was light. And God saw the light, that it "
                 "was good: and God divided the light from the darkness. And God called the light Day, and the "
                 "darkness he called Night. And the evening and the morning were the first day."),
      kRepetitionThreshold / 2);
  EXPECT_LT(repetition("for (int i = 0; i < 10; ++i) sum += values[i];\nfor (int j = 0; j < 10; ++j) product *= "
                       "values[j];\nreturn {sum, product};\n"),
            kRepetitionThreshold);
}

}  // namespace
}  // namespace qkv
