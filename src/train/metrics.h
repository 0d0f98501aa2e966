// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: the metrics of a run, one JSON object per line (docs/formats.md).
#pragma once

#include <string>
#include <utility>

#include "os/system_error.h"
#include "qkv/train.h"

namespace qkv {

// A line that cannot be written (disk full, for example) is kept and retried with a later one; it never ends a run.
class MetricsFile {
 public:
  // Opens the file for appending, after removing lines of steps newer than `step`, evaluations newer than
  // `evaluated_step`, and a last line truncated by a crash. Throws qkv::FileError.
  MetricsFile(const std::string& path, std::int64_t step, std::int64_t evaluated_step);

  // flops_fraction < 0: unknown.
  void write(const StepReport& report, double flops_fraction);
  void write(const EvalReport& report);
  void write_sample(std::int64_t step, const std::string& text);  // invalid UTF-8 becomes U+FFFD

  // Creates a new file if the open one was removed or replaced.
  void reopen_if_replaced();
  // Why lines are waiting, reported once each time writing starts to fail; else empty.
  std::string take_error() { return std::exchange(trouble_, {}); }

 private:
  void append(const std::string& line);
  void write_waiting();

  std::string path_;
  FileDescriptor file_;
  std::string waiting_;  // not yet written; the first line may be partly written
  bool in_line_ = false, failing_ = false;
  std::string trouble_;
};

}  // namespace qkv
