// SPDX-License-Identifier: Apache-2.0
#include "output_paths.h"

#include <filesystem>

#include "output.h"

namespace qkv::cli {
namespace {

namespace fs = std::filesystem;

bool same_place(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::exists(a, error) && fs::exists(b, error)) return fs::equivalent(a, b, error);
  const fs::path left = fs::weakly_canonical(a, error), right = fs::weakly_canonical(b, error);
  return !left.empty() && left == right;
}

// Only files and directories count: a terminal or pipe may be input and output.
bool is_kept(const std::string& path) {
  std::error_code error;
  return !path.empty() && path != "-" &&
         (!fs::exists(path, error) || fs::is_regular_file(path, error) || fs::is_directory(path, error));
}

}  // namespace

void check_outputs(const std::vector<std::string>& inputs, const std::vector<OutputPath>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputPath& output = outputs[i];
    if (!is_kept(output.path)) continue;
    for (const std::string& input : inputs)
      if (is_kept(input) && same_place(input, output.path))
        throw UsageError(output.option + " " + output.path + " would overwrite the input " + input);
    for (std::size_t j = 0; j < i; ++j)
      if (is_kept(outputs[j].path) && same_place(outputs[j].path, output.path))
        throw UsageError(outputs[j].option + " and " + output.option + " are the same file, " + output.path);
  }
}

std::string text_at(const std::vector<std::string>& texts, const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  for (const std::string& text : texts) {
    if (text == "-" || !fs::exists(text, error)) continue;
    if (fs::equivalent(text, path, error)) return text;
    if (!fs::is_directory(text, error)) continue;
    const fs::path below = fs::relative(path, text, error);
    bool hidden = below.empty();  // hidden files are not read; ".." is outside
    for (const fs::path& part : below) hidden = hidden || part.string().starts_with('.');
    if (!hidden && fs::file_size(path, error) > 0) return text + "/" + below.string();
  }
  return {};
}

}  // namespace qkv::cli
