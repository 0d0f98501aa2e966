// SPDX-License-Identifier: Apache-2.0
// What a command writes may be neither what it reads nor another of its own files.
#pragma once

#include <string>
#include <vector>

namespace qkv::cli {

struct OutputPath {
  std::string option;  // "--out"
  std::string path;    // empty: not wanted
};

// Throws UsageError, before anything is written, where an output is one of the inputs (by any of its names) or where
// two outputs are one file. An input directory counts as itself only; "-" and "" are ignored.
void check_outputs(const std::vector<std::string>& inputs, const std::vector<OutputPath>& outputs);

// For texts, where a directory means the files below it: the one that `path` is, or "".
std::string text_at(const std::vector<std::string>& texts, const std::string& path);

}  // namespace qkv::cli
