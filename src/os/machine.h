// SPDX-License-Identifier: Apache-2.0
// Facts about the machine and this process, for reports. Unknown values are 0 or empty.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

std::int64_t total_memory() noexcept;          // bytes
std::int64_t available_memory();               // bytes available without swapping, limits included
std::int64_t resident_memory();                // bytes of this process in memory now
std::int64_t peak_resident_memory() noexcept;  // its maximum so far
int core_count() noexcept;                     // processors this process may run on, at least 1
std::string cpu_name();                        // "AMD EPYC 9B45"

// Bytes that the control groups (versions 1 and 2) leave to a process: the minimum, over its group and the groups
// above, of limit - use + reclaimable memory (cached files). INT64_MAX if there is no limit. The arguments are the
// kernel's paths; tests pass others.
std::int64_t memory_left_in_groups(const std::string& groups = "/proc/self/cgroup",
                                   const std::string& root = "/sys/fs/cgroup");

}  // namespace qkv
