// SPDX-License-Identifier: Apache-2.0
#include "qkv/stop_strings.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace {

using qkv::StopStrings;

TEST(StopStrings, WithoutAnyAllTextIsShown) {
  StopStrings none;
  EXPECT_EQ(none.push("abc"), "abc");
  EXPECT_EQ(none.flush(), "");
  EXPECT_FALSE(none.found());
}

TEST(StopStrings, OneThatSpansTokensIsNeverShown) {
  StopStrings stop({"\nUser:"});
  EXPECT_EQ(stop.push("Hello\n"), "Hello");
  EXPECT_EQ(stop.push("Us"), "");
  EXPECT_EQ(stop.push("er"), "");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.push(": how"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.flush(), "");
}

TEST(StopStrings, TextThatCanNoLongerMatchIsShown) {
  StopStrings stop({"aab"});
  EXPECT_EQ(stop.push("a"), "");
  EXPECT_EQ(stop.push("a"), "");
  EXPECT_EQ(stop.push("a"), "a");  // "aa" may become "aab"
  EXPECT_EQ(stop.push("c"), "aac");
  EXPECT_EQ(stop.push("xa"), "x");
  EXPECT_EQ(stop.flush(), "a");
  EXPECT_FALSE(stop.found());
}

TEST(StopStrings, TheFirstToBeCompleteEndsTheText) {
  StopStrings at_once({"abcd", "bc"});
  EXPECT_EQ(at_once.push("xabcd"), "xa");
  StopStrings together({"c", "abc"});
  EXPECT_EQ(together.push("xabcd"), "x");
}

// Every split of a text into two parts or into single bytes shows the same.
TEST(StopStrings, SplitsDoNotChangeTheOutput) {
  const std::string text = "one aabaac two\xE6\xAD\xAA end";
  for (const std::vector<std::string>& strings : std::vector<std::vector<std::string>>{
           {"aac"}, {"two"}, {"baa", "aaba"}, {"\xAD"}, {" end"}, {"nothing", "d"}, {"endless"}}) {
    StopStrings whole(strings);
    std::string wanted = whole.push(text);
    wanted += whole.flush();
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      StopStrings parts(strings);
      std::string shown = parts.push(text.substr(0, cut));
      shown += parts.push(text.substr(cut));
      EXPECT_EQ(shown + parts.flush(), wanted);
    }
    StopStrings bytes(strings);
    std::string shown;
    for (const char c : text) shown += bytes.push(std::string(1, c));
    EXPECT_EQ(bytes.found(), whole.found());
    EXPECT_EQ(shown + bytes.flush(), wanted);
  }
}

TEST(StopStrings, AnEmptyOneIsRefused) { EXPECT_THROW(StopStrings({"a", ""}), std::invalid_argument); }

}  // namespace
