// SPDX-License-Identifier: Apache-2.0
// Checks that outputs of a command overwrite neither its inputs nor each other.
#pragma once

#include <string>
#include <vector>

namespace qkv::cli {

struct OutputPath {
  std::string option;  // "--out"
  std::string path;    // empty: not requested
};

// Throws UsageError, before anything is written, if an output is one of the inputs (by any path to it) or if two
// outputs are the same file. An input directory does not include its files; "-" and "" are ignored.
void check_outputs(const std::vector<std::string>& inputs, const std::vector<OutputPath>& outputs);

// The file among `texts` that is the same as `path`, or ""; a directory includes all files in it.
std::string text_at(const std::vector<std::string>& texts, const std::string& path);

}  // namespace qkv::cli
