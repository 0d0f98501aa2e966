// SPDX-License-Identifier: Apache-2.0
// Facts about the machine and this process, for reports. What the system does not tell is 0 or empty.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

std::int64_t total_memory() noexcept;          // bytes
std::int64_t available_memory();               // bytes that could be had now without swapping
std::int64_t resident_memory();                // bytes of this process in memory now
std::int64_t peak_resident_memory() noexcept;  // the most there were
int core_count() noexcept;                     // processors this process may run on, at least 1
std::string cpu_name();                        // "AMD EPYC 9B45"

}  // namespace qkv
