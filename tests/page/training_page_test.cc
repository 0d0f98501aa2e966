// SPDX-License-Identifier: Apache-2.0
#include "page/training_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "page/assets.h"
#include "page/training_data.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::Not;

int count(const std::string& text, const std::string& piece) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(piece, at)) != std::string::npos; at += piece.size()) ++found;
  return found;
}

TEST(TrainingPage, ShowsTheNumbersWithoutJavaScriptToo) {
  TrainingPage page;
  page.title = "small";
  page.phase = "running";
  page.refresh_seconds = 10;
  page.step = 1240;
  page.steps = 2000;
  page.loss = 2.47659;
  page.best_step = 1200;
  page.best_loss = 2.6288;
  page.best_bits_per_byte = 1.115;
  page.tokens_per_second = 61190.4;
  page.seconds_left = 3725;
  page.validation_losses.add(1200, 2.6288);
  page.bits_per_byte.add(1200, 1.115);
  page.samples.push_back({1000, "\nIn the beginning", false});
  page.facts.push_back({"Model", {{"n_head", "4"}}});
  const std::string html = training_page(page);
  for (const char* piece : {"<title>small · 62 % · loss 2.477</title>", "id=\"step\">1,240<", "id=\"now-loss\">2.4766<",
                            "id=\"now-val\">2.6288<", "id=\"now-speed\">61,190<", "id=\"left\">1 h 2 min<",
                            ">In the beginning</p>", "<dt>n_head</dt><dd dir=\"auto\">4</dd>",
                            "<td>1,200</td><td>2.6288</td><td>1.1150</td>", "http-equiv=\"refresh\" content=\"10\""}) {
    EXPECT_THAT(html, HasSubstr(piece));
  }
}

TEST(TrainingPage, OmitsAnImpossibleShareOfThePeak) {
  TrainingPage page;
  page.peak_fraction = 0.8125;
  EXPECT_THAT(training_page(page), HasSubstr("81.2 % of the machine's peak"));
  for (const double fraction : {1.338, kUnknown}) {
    page.peak_fraction = fraction;
    EXPECT_THAT(training_page(page), Not(HasSubstr("of the machine's peak")));
  }
}

TEST(TrainingPage, IsSelfContained) {
  const std::string html = training_page(TrainingPage());
  for (const char* piece : {"http:", "https:", "src=", "@import", "<link rel=\"stylesheet", "<iframe"}) {
    std::string without = html;  // the SVG namespace is not an external address
    for (const std::string& name : {std::string("http://www.w3.org/2000/svg"), std::string("script-src")}) {
      for (std::size_t at; (at = without.find(name)) != std::string::npos;) without.erase(at, name.size());
    }
    EXPECT_THAT(without, Not(HasSubstr(piece)));
  }
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, HasSubstr("'sha256-" + std::string(kTrainingScriptHash) + "'"));
  EXPECT_THAT(html, Not(HasSubstr("unsafe-inline'; script-src 'unsafe")));
  EXPECT_THAT(html, Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST(TrainingPage, ShowsHostileTextAsText) {
  const std::string hostile = "</script><script>bad()</script><img src=x onerror=bad()>\"'";
  TrainingPage page;
  page.title = page.message = hostile;
  page.phase = "failed";
  page.samples.push_back({1, hostile, true});
  page.facts.push_back({hostile, {{hostile, hostile}}});
  page.marks.push_back(Marks(hostile));
  page.marks.back().add(1, hostile);
  const std::string html = training_page(page);
  EXPECT_EQ(count(html, "<script>"), 1);
  EXPECT_EQ(count(html, "<script"), 2);
  EXPECT_EQ(count(html, "</script>"), 2);
  EXPECT_EQ(count(html, "<img"), 0);
  EXPECT_EQ(count(html, "&lt;/script&gt;"), 2 * (2 + 1 + 1 + 3 + 2))
      << "title twice, message, sample, three facts, mark twice";
}

TEST(TrainingPage, StaysSmallHoweverLongTheRun) {
  TrainingPage page;
  for (std::int64_t step = 1; step <= 300'000; ++step) {
    const double value = 2 + 1e-7 * static_cast<double>(step * 7919 % 100'003);
    page.losses.add(step, value);
    page.grad_norms.add(step, value);
    page.learning_rates.add(step, value);
    page.speeds.add(step, value);
    if (step % 10 == 0) page.validation_losses.add(step, value);
  }
  EXPECT_LT(training_page(page).size(), 1'000'000U);
}

TEST(Words, AreThoseThatPeopleUse) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1048576), "1,048,576");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(-100), "-100");
  EXPECT_EQ(duration(41.2), "41 s");
  EXPECT_EQ(duration(725), "12 min 5 s");
  EXPECT_EQ(duration(10920), "3 h 2 min");
  EXPECT_EQ(duration(442800), "5 d 3 h");
  EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_time(951782400), "2000-02-29T00:00:00Z");
}

}  // namespace
}  // namespace qkv
