// SPDX-License-Identifier: Apache-2.0
// Facts about the machine and this process, for reports. What the system does not tell is 0 or empty.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

std::int64_t total_memory() noexcept;          // bytes
std::int64_t available_memory();               // bytes that could be had now without swapping, limits considered
std::int64_t resident_memory();                // bytes of this process in memory now
std::int64_t peak_resident_memory() noexcept;  // the most there were
int core_count() noexcept;                     // processors this process may run on, at least 1
std::string cpu_name();                        // "AMD EPYC 9B45"

// Bytes that the control groups (versions 1 and 2) of a process leave it: the least, over its group and those above it,
// of limit - use + what the kernel would give back (cached files). INT64_MAX where there is no limit. The arguments are
// where the kernel shows them, other places are for tests.
std::int64_t memory_left_in_groups(const std::string& groups = "/proc/self/cgroup",
                                   const std::string& root = "/sys/fs/cgroup");

}  // namespace qkv
