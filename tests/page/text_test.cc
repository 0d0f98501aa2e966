// SPDX-License-Identifier: Apache-2.0
#include "page/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace qkv {
namespace {

using namespace std::string_literals;

constexpr const char* kStandIn = "\xEF\xBF\xBD";

TEST(HtmlText, IsPlainTextInAnyContext) {
  EXPECT_EQ(html_text("<b a=\"1\" c='2'>&amp;"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
  EXPECT_EQ(html_text("蒔絵師 Внимание 🌱\n\t"), "蒔絵師 Внимание 🌱\n\t");
}

TEST(HtmlText, ReplacesInvalidText) {
  EXPECT_EQ(html_text("a\0b\x1B[31m\x7F"s), "a"s + kStandIn + "b" + kStandIn + "[31m" + kStandIn);
  EXPECT_EQ(html_text("\xFF"), kStandIn);
  EXPECT_EQ(html_text("\xE8\x92"), kStandIn + ""s + kStandIn);               // truncated
  EXPECT_EQ(html_text("\xC0\xBC"), kStandIn + ""s + kStandIn);               // an overlong '<'
  EXPECT_EQ(html_text("\xED\xA0\x80").find('\xED'), std::string::npos);      // a surrogate
  EXPECT_EQ(html_text("\xF4\x90\x80\x80").find('\xF4'), std::string::npos);  // past U+10FFFF
  EXPECT_EQ(html_text("\xC3<"), kStandIn + "&lt;"s);                         // the next character is kept
}

TEST(JsonText, CannotEndAScript) {
  EXPECT_EQ(json_text("</script><!--"), "\"\\u003c/script\\u003e\\u003c!--\"");
  EXPECT_EQ(json_text("a\"\\b\n\t&"), "\"a\\\"\\\\b\\n\\t\\u0026\"");
  EXPECT_EQ(json_text("\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xA6"), "\"\\u2028\\u2029\xE2\x80\xA6\"");
  EXPECT_EQ(json_text("\x01\xFE"), "\""s + kStandIn + kStandIn + "\"");
}

TEST(JsonNumber, HasSevenDigits) {
  EXPECT_EQ(json_number(0.5), "0.5");
  EXPECT_EQ(json_number(-1234567), "-1234567");
  EXPECT_EQ(json_number(1.0 / 3), "0.3333333");
  EXPECT_EQ(json_number(1e-9), "1e-09");
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(INFINITY), "null");
}

}  // namespace
}  // namespace qkv
