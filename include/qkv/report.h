// SPDX-License-Identifier: Apache-2.0
// report.html, the page of a training run: made from the run's own files, while it goes on and after
// (docs/training.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "qkv/train.h"

namespace qkv {

enum class RunPhase : std::uint8_t { running, finished, stopped, failed };

// Facts under one heading, to be shown: name, value.
struct RunFacts {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;
};

// Keeps run.json (how the run was asked to be, on what machine, when it was started) and report.html beside the run's
// metrics.jsonl. All functions throw qkv::FileError for what cannot be read or written; the page that was there then
// stands. Not thread-safe.
class RunReport {
 public:
  // Notes a start: the trainer's configuration, its model's and the machine's facts, then `facts` (a heading that is
  // there already gains the rows).
  RunReport(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts = {});
  ~RunReport();
  RunReport(RunReport&&) noexcept;
  RunReport& operator=(RunReport&&) noexcept;

  // Writes the page, if the last time is at least five seconds ago and at least a hundred times as long as writing
  // took; says whether it did. For every step.
  bool write_if_due();
  void write();
  // Notes in run.json how it ended, and writes the page that says so and renews itself no more.
  void end(RunPhase phase, const std::string& message = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes report.html anew from the run's files in `directory`. Throws qkv::FileError: no metrics.jsonl, files that are
// not ours, or a page that cannot be written. May be called while the run goes on.
void write_report(const std::string& directory);

}  // namespace qkv
