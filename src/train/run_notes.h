// SPDX-License-Identifier: Apache-2.0
// run.json: how a run was asked to be, on what machine, when it was started and how it ended (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/report.h"

namespace qkv {

struct RunStart {
  std::int64_t step = 0;  // steps done before it
  std::int64_t time = 0;  // seconds since 1970
  std::string end;        // "finished", "stopped", "failed", or empty: it goes on, or ended without a word
  std::string message;
};

struct RunNotes {
  std::int64_t steps = 0;       // of the whole run
  std::vector<RunFacts> facts;  // of the newest start
  std::vector<RunStart> starts;
};

// Throws qkv::FileError for what is not such a file; one that is missing holds nothing.
RunNotes read_run_notes(const std::string& path);
void write_run_notes(const std::string& path, const RunNotes& notes);

}  // namespace qkv
