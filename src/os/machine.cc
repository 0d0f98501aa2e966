// SPDX-License-Identifier: Apache-2.0
#include "os/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace qkv {
namespace {

// The value after "KEY...:" in a file of such lines, spaces trimmed; empty if missing.
std::string field(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return {};
}

std::int64_t kilobytes(const char* path, std::string_view key) {
  const std::string text = field(path, key);
  std::int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9' || value > (std::int64_t{1} << 50)) break;
    value = value * 10 + (c - '0');
  }
  return value * 1024;
}

}  // namespace

std::int64_t total_memory() noexcept {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? pages * size : 0;
}

std::int64_t available_memory() {
  const std::int64_t machine = kilobytes("/proc/meminfo", "MemAvailable");
  return machine > 0 ? std::min(machine, memory_left_in_groups()) : 0;
}
std::int64_t resident_memory() { return kilobytes("/proc/self/status", "VmRSS"); }

std::int64_t peak_resident_memory() noexcept {
  struct rusage usage {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? std::int64_t{usage.ru_maxrss} * 1024 : 0;
}

int core_count() noexcept {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string cpu_name() { return field("/proc/cpuinfo", "model name"); }

}  // namespace qkv
