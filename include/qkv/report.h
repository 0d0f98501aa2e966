// SPDX-License-Identifier: Apache-2.0
// report.html, the HTML report of a training run, generated from the run's files during and after the run
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

// Name-value pairs to show under one heading.
struct RunFacts {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;
};

// Maintains run.json (configuration, machine, start time) and report.html next to the run's metrics.jsonl. All
// functions throw qkv::FileError if a file cannot be read or written; the previous report then stays. Not thread-safe.
class RunReport {
 public:
  // Records a start: trainer configuration, model and machine, then `facts` (rows under an existing heading are
  // appended to it).
  RunReport(const std::string& directory, Trainer& trainer, const std::vector<RunFacts>& facts = {});
  ~RunReport();
  RunReport(RunReport&&) noexcept;
  RunReport& operator=(RunReport&&) noexcept;

  // Call after every step. Writes the report if at least five seconds, and at least a hundred times the duration of the
  // last write, have passed since then; returns whether it did.
  bool write_if_due();
  void write();
  // Records in run.json how the run ended, and writes the final report, which no longer reloads itself.
  void end(RunPhase phase, const std::string& message = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Regenerates report.html from the run's files in `directory`. Throws qkv::FileError if there is no metrics.jsonl,
// files are not from qkv, or the report cannot be written. May be called during the run.
void write_report(const std::string& directory);

}  // namespace qkv
