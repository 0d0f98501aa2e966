// SPDX-License-Identifier: Apache-2.0
#include "text/oniguruma.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "text/normalise.h"
#include "text/splitter.h"

namespace qkv {
namespace {

TEST(Oniguruma, ExpandsWhatTheEnginesTreatDifferently) {
  EXPECT_EQ(from_oniguruma(R"(\s+(?!\S)|[^\s\p{L}]| ?\p{N}{1,3})"),
            R"(\p{White_Space}+(?!\P{White_Space})|[^\p{White_Space}\p{L}]| ?\p{N}{1,3})");
  EXPECT_EQ(from_oniguruma(R"(\d\w[\w\-]\v)"),
            R"(\p{Nd}[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}][\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\-]\x0b)");
  EXPECT_EQ(from_oniguruma(R"(\p{Han}\P{Greek}\u00e9\x41\x{1F600})"), R"(\p{sc:Han}\P{sc:Greek}\x{00e9}\x41\x{1F600})");
  EXPECT_EQ(from_oniguruma(R"(^a$[$^])"), R"((?m:^)a(?m:$)[$^])");
  EXPECT_EQ(from_oniguruma(R"((?i:'s)|(?<=a)(?>b)\(\r\n)"), R"((?i:'s)|(?<=a)(?>b)\(\r\n)");
}

TEST(Oniguruma, RefusesConstructsWithoutAnEquivalent) {
  for (const char* pattern :
       {R"(\h)",     R"(\R)",   R"(\X)",   R"(\b)",   R"(\1)",     R"(\K)",      R"([[:alpha:]])", R"([a[bc]])",
        R"([a&&b])", R"([])",   R"([^]])", R"([\W])", R"((?m:a))", R"((?<n>a))", R"((*UTF))",      R"(a{1,2}+)",
        R"(a{,2})",  R"(\xff)", R"(\x{})", R"(\u12)", R"(\p{^L})", R"(\pL)",     R"([a)",          "\\"})
    EXPECT_THROW(from_oniguruma(pattern), std::invalid_argument) << pattern;
}

// U+180E is whitespace in PCRE2 but no longer in Unicode.
TEST(Oniguruma, SpacesFollowUnicode) {
  std::vector<std::string> pieces;
  Splitter({std::string(kGpt2Pattern)}).split("a\u180Eb \u2003c", [&](std::string_view p) { pieces.emplace_back(p); });
  EXPECT_THAT(pieces, testing::ElementsAre("a", "\u180E", "b", " ", "\u2003", "c"));
}

TEST(Normalise, Forms) {
  const auto in = [](const char* text, Normaliser form) { return normalise(text, {&form, 1}); };
  EXPECT_EQ(in("e\u0301", Normaliser::nfc), "\u00e9");
  EXPECT_EQ(in("\u00e9", Normaliser::nfd), "e\u0301");
  EXPECT_EQ(in("\uFB01\u00B2", Normaliser::nfkc), "fi2");
  EXPECT_EQ(in("\u1E9B\u0323", Normaliser::nfkd), "s\u0323\u0307");
  EXPECT_EQ(in("\uFB01", Normaliser::nfc), "\uFB01");
  EXPECT_EQ(in("e\xFF\u0301", Normaliser::nfc), "e\xFF\u0301");  // nothing composes across an invalid byte
  EXPECT_EQ(in("", Normaliser::nfc), "");
  EXPECT_EQ(normalise("e\u0301\uFB01", std::vector{Normaliser::nfkd, Normaliser::nfc}),
            "\u00e9"
            "fi");
}

}  // namespace
}  // namespace qkv
