// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "os/machine.h"

namespace qkv {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLargestLimit = std::int64_t{1} << 60;  // version 1 writes "none" as a number near 2^63

// The content of a small file as a number; nullopt if it does not exist or contains a word ("max").
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Names of files in the directory of a group.
struct Names {
  const char *limit, *use, *stat;
  std::string_view cached[2];  // keys in stat
};
constexpr Names kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", {"total_inactive_file", "total_active_file"}};
constexpr Names kVersion2{"memory.max", "memory.current", "memory.stat", {"inactive_file", "active_file"}};

std::int64_t cached_files(const std::string& path, const Names& names) {
  std::ifstream file(path);
  std::int64_t sum = 0;
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;)
    if (key == names.cached[0] || key == names.cached[1]) sum += std::clamp<std::int64_t>(value, 0, kLargestLimit);
  return std::min(sum, kLargestLimit);
}

std::int64_t left_in(const std::string& folder, const Names& names) {
  const auto limit = number_in(folder + "/" + names.limit), use = number_in(folder + "/" + names.use);
  if (!limit || !use || *limit > kLargestLimit) return kNoLimit;
  const std::int64_t kept = std::max<std::int64_t>(0, *use - cached_files(folder + "/" + names.stat, names));
  return std::max<std::int64_t>(0, *limit - kept);
}

// The minimum over a group and all groups above it. Inside a container, the path may be that of the host, of which only
// the end or nothing is visible here: missing directories are skipped.
std::int64_t least_from(const std::string& root, std::string path, const Names& names) {
  std::int64_t least = left_in(root, names);
  while (path.size() > 1) {
    least = std::min(least, left_in(root + path, names));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return least;
}

// Whether a comma-separated list contains a word.
bool is_among(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

std::int64_t memory_left_in_groups(const std::string& groups, const std::string& root) {
  std::int64_t least = kNoLimit;
  std::ifstream file(groups);
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:PATH
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* below : {"", "/unified"}) least = std::min(least, least_from(root + below, path, kVersion2));
    } else if (is_among(controllers, "memory")) {
      least = std::min(least, least_from(root + "/memory", path, kVersion1));
    }
  }
  return least;
}

}  // namespace qkv
