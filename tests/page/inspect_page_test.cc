// SPDX-License-Identifier: Apache-2.0
#include "page/inspect_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "page/inspect_data.h"
#include "page/inspect_random.h"
#include "page/token_labels.h"

namespace qkv {
namespace {

using test::RandomPass;
using ::testing::HasSubstr;

std::size_t occurrences(const std::string& text, const std::string& wanted) {
  std::size_t found = 0;
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++found;
  return found;
}

TEST(InspectPage, escapes_markup_in_the_text) {
  const RandomPass pass(2, 2, 40, 4);
  const std::string html = inspect_html(pass.page);
  EXPECT_EQ(occurrences(html, "</script>"), occurrences(html, "<script"));
  EXPECT_EQ(occurrences(html, "<img"), 0u);
  EXPECT_THAT(html, HasSubstr("<title>drawn &lt;b&gt;heads&lt;/b&gt;"));
  EXPECT_THAT(html, HasSubstr("\\u003c/script\\u003e"));
  EXPECT_THAT(html, HasSubstr("not evidence of what a head means"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_EQ(occurrences(html, "http://"), occurrences(html, "http://www.w3.org/"));  // only names of formats
  EXPECT_EQ(occurrences(html, "https://"), 0u);
}

TEST(InspectPage, keeps_to_its_size_limit) {
  const RandomPass pass(3, 4, 48, 16);
  const std::string finest = inspect_html(pass.page);
  EXPECT_THAT(finest, HasSubstr("\"weightPeak\":65535,\"weightPower\":3,\"scoreBits\":16,\"vectorBits\":[16,16,"));
  std::size_t before = finest.size() + 1;
  for (const std::size_t most : {finest.size() - 1, finest.size() * 4 / 5, finest.size() * 3 / 5}) {
    const std::string html = inspect_html(pass.page, most);
    EXPECT_LE(html.size(), most);
    EXPECT_LT(html.size(), before);
    before = html.size();
  }
  EXPECT_THROW(inspect_html(pass.page, 20000), std::invalid_argument);
}

TEST(InspectPage, keeps_the_vectors_of_the_most_interesting_heads) {
  RandomPass pass(1, 4, 8, 4);
  pass.page.head_scores = {{0.1, 0, 0, 0}, {0, 0, 0, 0.9}, {0, 0.8, 0, 0}, {0, 0, 0.15, 0}};
  const auto scores = text_scores(pass.page);
  InspectBlobs blobs;
  pack_vectors(blobs, pass.page, 8);
  const std::size_t most = blobs.size();
  EXPECT_TRUE(fit_vectors(blobs, pass.page, scores, most));
  EXPECT_EQ(blobs.vector_bits, (std::vector<std::int32_t>{8, 8, 8, 8}));
  pack_vectors(blobs, pass.page, 3);
  const std::size_t least = blobs.size();
  EXPECT_TRUE(fit_vectors(blobs, pass.page, scores, least + (most - least) / 3));
  EXPECT_EQ(blobs.vector_bits[1], 8);  // 0.9, then 0.8 / 4, 0.15, 0.1
  EXPECT_EQ(blobs.vector_bits[0], 3);
  EXPECT_LE(blobs.size(), least + (most - least) / 3);
  pass.page.first = {{0, 0}};
  EXPECT_TRUE(fit_vectors(blobs, pass.page, scores, least + (most - least) / 3));
  EXPECT_EQ(blobs.vector_bits[0], 8);
  EXPECT_FALSE(fit_vectors(blobs, pass.page, scores, least - 1));
  EXPECT_EQ(blobs.vector_bits[0], 4);
  EXPECT_EQ(blobs.vector_bits[3], 0);
  EXPECT_EQ(blobs.vectors[3], "\n");
}

TEST(InspectPage, ranks_heads_on_the_text) {
  // Tokens a b a b; one head. Row 2 gives weight 1/2 to key 1 (previous) and 1/2 to key 0 (first, and the same token);
  // row 3 attends to key 2, which is the previous token and the one after the last b.
  const std::vector<float> pattern = {1, 0, 0, 0, 0.25f, 0.75f, 0, 0, 0.5f, 0.5f, 0, 0, 0, 0, 1, 0};  // [4, 4]
  InspectPage page;
  page.n_head = page.n_kv_head = 1;
  page.ids = {7, 8, 7, 8};
  page.tokens = {"a", "b", "a", "b"};
  InspectLayer layer;
  layer.pattern = pattern.data();
  page.layers = {layer};
  const auto scores = text_scores(page);
  EXPECT_DOUBLE_EQ(scores[0][0], (0.25 + 0.5 + 1) / 3);  // previous token
  EXPECT_DOUBLE_EQ(scores[0][1], (0.25 + 0.5 + 0) / 3);  // first token
  EXPECT_DOUBLE_EQ(scores[0][2], (0.5 + 0) / 2);         // the same token
  EXPECT_DOUBLE_EQ(scores[0][3], (0.5 + 1) / 2);         // the one after it
}

TEST(InspectPage, refuses_inconsistent_input) {
  RandomPass pass(1, 2, 5, 4);
  InspectPage page = pass.page;
  page.layers[0].k = nullptr;
  EXPECT_THROW(inspect_html(page), std::invalid_argument);
  page = pass.page;
  page.ids.pop_back();
  EXPECT_THROW(inspect_html(page), std::invalid_argument);
  page = pass.page;
  page.lens.pop_back();
  EXPECT_THROW(inspect_html(page), std::invalid_argument);
  page = pass.page;
  page.tokens.clear();
  EXPECT_THROW(inspect_html(page), std::invalid_argument);
  for (auto& numbers : pass.numbers) {
    const float before = (*numbers)[0];
    (*numbers)[0] = std::numeric_limits<float>::quiet_NaN();
    if (&numbers - pass.numbers.data() < 6) {  // q, k, v, z, scaled scores, pattern
      EXPECT_THROW(inspect_html(pass.page), std::invalid_argument) << &numbers - pass.numbers.data();
    } else {
      EXPECT_NO_THROW(inspect_html(pass.page));  // a lens probability becomes null
    }
    (*numbers)[0] = before;
  }
}

TEST(TokenLabels, distinguish_parts_of_characters) {
  const std::vector<TokenLabel> labels = token_labels({"a\xE8", "\x92",
                                                       "\x94"
                                                       "b",
                                                       "\xFF", "", "\xF0\x9F",
                                                       "\x8C\xB1"
                                                       "!"});
  std::vector<std::string> texts, names;
  for (const TokenLabel& label : labels) {
    texts.push_back(label.text);
    names.push_back(label.label);
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("a蒔", "", "b", "⟨FF⟩", "", "🌱", "!"));
  EXPECT_THAT(names, ::testing::ElementsAre("a蒔¹", "蒔²", "蒔³b", "⟨FF⟩", "", "🌱¹", "🌱²!"));
  EXPECT_EQ(token_label("\xE8"
                        "x"),
            "⟨E8⟩x");
  EXPECT_EQ(token_label("蒔"), "蒔");
}

}  // namespace
}  // namespace qkv
