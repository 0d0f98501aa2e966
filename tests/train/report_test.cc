// SPDX-License-Identifier: Apache-2.0
// report.html: reading metrics.jsonl and run.json, while they grow, and from untrusted files.
#include "qkv/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "page/training_data.h"
#include "qkv/error.h"
#include "small_run.h"
#include "test_directory.h"
#include "train/run_log.h"
#include "train/run_notes.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

TEST(RunLog, ContinuesReadingWhereItStopped) {
  const TestDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  RunLog log(path);
  log.read_new_lines();
  EXPECT_EQ(log.page().step, 0) << "no file";
  append(path,
         "{\"step\":1,\"loss\":5.5,\"grad_norm\":2,\"learning_rate\":1e-3,\"ms\":250,\"tokens_per_s\":64}\n{\"st");
  log.read_new_lines();
  EXPECT_EQ(log.page().step, 1);
  EXPECT_EQ(log.page().loss, 5.5);
  EXPECT_EQ(log.page().seconds_done, 0.25);
  append(path, "ep\":2,\"loss\":5,\"grad_norm\":1,\"learning_rate\":2e-3,\"ms\":750,\"tokens_per_s\":32}\n");
  append(path, "{\"step\":2,\"val_loss\":5.25,\"bits_per_byte\":2.5,\"val_tokens\":9,\"best\":true}\n");
  append(path, "{\"step\":2,\"sample\":\"\\u4fee\\u5fa9\",\"repeats\":true}\n");
  log.read_new_lines();
  EXPECT_EQ(log.unreadable_lines(), 0);
  ASSERT_EQ(log.page().losses.buckets().size(), 2U);
  EXPECT_EQ(log.page().losses.buckets()[1].mean(), 5);
  EXPECT_EQ(log.page().speeds.buckets()[1].mean(), 32);
  EXPECT_EQ(log.page().seconds_done, 1);
  EXPECT_EQ(log.page().best_step, 2);
  EXPECT_EQ(log.page().best_loss, 5.25);
  ASSERT_EQ(log.page().samples.size(), 1U);
  EXPECT_EQ(log.page().samples[0].text, "修復");
  EXPECT_TRUE(log.page().samples[0].repeats);
}

TEST(RunLog, StartsOverIfTheFileWasReplaced) {
  const TestDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  append(path, "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n");
  RunLog log(path);
  log.read_new_lines();
  append(directory / "new", "{\"step\":1,\"loss\":7}\n{\"step\":2,\"loss\":8}\n{\"step\":3,\"loss\":9}\n");
  std::filesystem::rename(directory / "new", path);
  log.read_new_lines();
  ASSERT_EQ(log.page().losses.buckets().size(), 3U);
  EXPECT_EQ(log.page().losses.buckets()[0].mean(), 7);
  std::filesystem::resize_file(path, 20);  // truncated in place
  log.read_new_lines();
  EXPECT_EQ(log.page().losses.buckets().size(), 1U);
}

TEST(RunLog, MarksSkippedStepsAndSpikes) {
  const TestDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  append(path,
         "{\"step\":1,\"loss\":null,\"grad_norm\":null,\"skipped\":true}\n{\"step\":2,\"loss\":9,\"spike\":7.25}\n");
  RunLog log(path);
  log.read_new_lines();
  EXPECT_EQ(log.page().losses.buckets().size(), 1U);
  const std::vector<Marks>& marks = log.page().marks;
  EXPECT_EQ(marks[0].kind(), "skipped");
  EXPECT_EQ(marks[0].marks().at(0).first, 1);
  EXPECT_EQ(marks[1].kind(), "spike");
  EXPECT_EQ(marks[1].marks().at(0).text, "z = 7.2");
}

TEST(RunLog, SkipsInvalidLines) {
  const TestDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& line :
       {std::string("nonsense"), std::string("[1]"), std::string("{}"), std::string("{\"step\":-1}"),
        std::string("{\"step\":1.5,\"loss\":1}"), std::string("{\"step\":99999999999999999999,\"loss\":1}"),
        std::string("{\"step\":\"1\"}"), std::string("7"), std::string(), "{\"step\":1,\"x\":" + deep + "}",
        std::string("{\"a\":{\"step\":1,\"loss\":1}}"), std::string("{\"step\":1,\"sample\":\"\xFF\"}")}) {
    append(path, line + "\n");
  }
  append(path, "{\"step\":3,\"loss\":\"high\",\"grad_norm\":[1],\"x\":{\"loss\":4},\"learning_rate\":1e400}\n");
  RunLog log(path);
  log.read_new_lines();
  EXPECT_EQ(log.unreadable_lines(), 13) << "the last has an invalid number";
  EXPECT_EQ(log.page().step, 0);
  EXPECT_TRUE(log.page().losses.buckets().empty());
  append(path, "{\"step\":4,\"loss\":\"high\",\"grad_norm\":[1],\"x\":{\"loss\":4}}\n");
  log.read_new_lines();
  EXPECT_EQ(log.page().step, 4);
  EXPECT_TRUE(log.page().losses.buckets().empty());
}

TEST(RunLog, KeepsAFewOfManySamples) {
  const TestDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  std::string lines;
  const std::string sample(6001, 'x');
  for (int step = 1; step <= 3000; ++step) {
    lines += "{\"step\":" + std::to_string(step) + ",\"sample\":\"" + sample + "\"}\n";
  }
  append(path, lines);
  RunLog log(path);
  log.read_new_lines();
  const std::vector<PageSample>& samples = log.page().samples;
  EXPECT_LE(samples.size(), 200U);
  EXPECT_GE(samples.size(), 30U);
  EXPECT_EQ(samples.front().step, 1);
  EXPECT_EQ(samples.back().step, 3000);
  EXPECT_EQ(log.page().samples_left_out + static_cast<std::int64_t>(samples.size()), 3000);
  EXPECT_LE(samples[0].text.size(), 4010U);
  EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end(),
                             [](const PageSample& a, const PageSample& b) { return a.step < b.step; }));
}

TEST(RunNotes, AreReadAsWritten) {
  const TestDirectory directory;
  const std::string path = directory / "run.json";
  EXPECT_TRUE(read_run_notes(path).starts.empty());
  write_run_notes(
      path,
      {200, {{"Data", {{"text", "файл.txt"}, {"bad", "\xFF"}}}}, {{0, 1000, "stopped", "why"}, {7, 2000, "", ""}}});
  const RunNotes notes = read_run_notes(path);
  EXPECT_EQ(notes.steps, 200);
  EXPECT_EQ(notes.facts.at(0).rows.at(0).second, "файл.txt");
  EXPECT_EQ(notes.facts.at(0).rows.at(1).second, "\xEF\xBF\xBD");
  EXPECT_EQ(notes.starts.at(0).end, "stopped");
  EXPECT_EQ(notes.starts.at(0).message, "why");
  EXPECT_EQ(notes.starts.at(1).step, 7);
}

TEST(RunNotes, RefuseOtherFiles) {
  const TestDirectory directory;
  const std::string path = directory / "run.json";
  for (const char* text :
       {"", "[]", "{}", "{\"qkv_format\":2,\"steps\":1,\"facts\":[],\"starts\":[]}",
        "{\"qkv_format\":1,\"steps\":-1,\"facts\":[],\"starts\":[]}",
        "{\"qkv_format\":1,\"steps\":1,\"facts\":[{\"title\":\"a\",\"rows\":[[\"b\"]]}],\"starts\":[]}",
        "{\"qkv_format\":1,\"steps\":1,\"facts\":[],\"starts\":[{\"step\":1,\"time\":1,\"end\":\"<b>\"}]}"}) {
    std::ofstream(path) << text;
    EXPECT_THROW(read_run_notes(path), FileError) << text;
  }
}

TEST(RunReport, FollowsARun) {
  const TestDirectory directory;
  const TrainConfig config = small_training();
  Trainer trainer = small_trainer(config);
  trainer.save(directory.path());
  RunReport report(directory.path(), trainer, {{"Data", {{"text", "<b>.txt"}}}, {"Machine", {{"peak", "7 GF/s"}}}});
  report.write();
  const std::string first = contents(directory / "report.html");
  EXPECT_THAT(first, HasSubstr("<dt>text</dt><dd dir=\"auto\">&lt;b&gt;.txt</dd>"));
  EXPECT_THAT(first, HasSubstr("<dt>peak</dt><dd dir=\"auto\">7 GF/s</dd>"));
  EXPECT_THAT(first, HasSubstr("<dt>threads</dt>"));
  EXPECT_THAT(first, HasSubstr("<dt>d_model</dt>"));
  EXPECT_THAT(first, HasSubstr("id=\"phase\">running<"));
  TrainObserver observer;
  observer.on_step = [&](const StepReport&) { report.write_if_due(); };
  EXPECT_TRUE(run_training(trainer, {directory.path()}, observer));
  report.end(RunPhase::finished);
  const std::string last = contents(directory / "report.html");
  EXPECT_THAT(last, HasSubstr("id=\"phase\">finished<"));
  EXPECT_THAT(last, HasSubstr("id=\"step\">" + grouped(config.steps) + "<"));
  EXPECT_THAT(last, Not(HasSubstr("http-equiv=\"refresh\"")));
  write_report(directory.path());
  const auto undated = [](std::string html) {
    const std::size_t age = html.find("id=\"age\""), written = html.find("\"written\":");
    return html.erase(written, 25).erase(age, 70);
  };
  EXPECT_EQ(undated(contents(directory / "report.html")), undated(last)) << "the same if regenerated";
}

TEST(WriteReport, NeedsARun) {
  const TestDirectory directory;
  EXPECT_THROW(write_report(directory.path()), FileError);
  EXPECT_THROW(write_report(directory / "none"), FileError);
  append(directory / "metrics.jsonl", "{\"step\":3,\"loss\":2.5}\n");
  write_report(directory.path());  // a run of an older version has no run.json
  EXPECT_THAT(contents(directory / "report.html"), HasSubstr("id=\"now-loss\">2.5000<"));
}

}  // namespace
}  // namespace qkv
