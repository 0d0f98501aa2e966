// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what a run told, one JSON object a line (docs/formats.md).
#pragma once

#include <string>
#include <utility>

#include "os/system_error.h"
#include "qkv/train.h"

namespace qkv {

// A line that cannot be written (a full disk, say) is kept and written with a later one: no run ends for it.
class MetricsFile {
 public:
  // Opens it for appending, after all that is newer than `step` (and a last line that a crash cut short) is removed,
  // and evaluations newer than `evaluated_step`. Throws qkv::FileError.
  MetricsFile(const std::string& path, std::int64_t step, std::int64_t evaluated_step);

  // flops_fraction < 0: not known.
  void write(const StepReport& report, double flops_fraction);
  void write(const EvalReport& report);
  void write_sample(std::int64_t step, const std::string& text);  // what is no UTF-8 becomes U+FFFD

  // Begins a new file if the one that is written to is no longer the one of that name.
  void follow_name();
  // Why lines are waiting, once for each time that writing begins to fail; empty if there is nothing to tell.
  std::string take_trouble() { return std::exchange(trouble_, {}); }

 private:
  void append(const std::string& line);
  void write_waiting();

  std::string path_;
  FileDescriptor file_;
  std::string waiting_;  // not yet written; its first line may be written in part
  bool in_line_ = false, failing_ = false;
  std::string trouble_;
};

}  // namespace qkv
