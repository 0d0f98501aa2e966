// SPDX-License-Identifier: Apache-2.0
// run.json: a run's configuration, its machine, and when it was started and how it ended (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/report.h"

namespace qkv {

struct RunStart {
  std::int64_t step = 0;  // steps completed before it
  std::int64_t time = 0;  // seconds since 1970
  std::string end;        // "finished", "stopped", "failed", or empty: still running or crashed
  std::string message;
};

struct RunNotes {
  std::int64_t steps = 0;       // of the whole run
  std::vector<RunFacts> facts;  // from the latest start
  std::vector<RunStart> starts;
};

// Throws qkv::FileError for an invalid file; a missing one counts as empty.
RunNotes read_run_notes(const std::string& path);
void write_run_notes(const std::string& path, const RunNotes& notes);

}  // namespace qkv
