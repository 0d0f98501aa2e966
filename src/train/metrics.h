// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what a run told, one JSON object a line (docs/formats.md).
#pragma once

#include <string>

#include "os/system_error.h"
#include "qkv/train.h"

namespace qkv {

class MetricsFile {
 public:
  // Opens it for appending, after all that is newer than `step` (and a last line that a crash cut short) is removed.
  // Throws qkv::FileError, as do all others.
  MetricsFile(const std::string& path, std::int64_t step);

  // flops_fraction < 0: not known.
  void write(const StepReport& report, double flops_fraction);
  void write(const EvalReport& report);
  void write_sample(std::int64_t step, const std::string& text);  // what is no UTF-8 becomes U+FFFD

 private:
  void append(const std::string& line);

  std::string path_;
  FileDescriptor file_;
};

}  // namespace qkv
