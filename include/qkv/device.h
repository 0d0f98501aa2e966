// SPDX-License-Identifier: Apache-2.0
// Devices that models run on.
#pragma once

#include <string_view>
#include <vector>

namespace qkv {

struct DeviceInfo {
  std::string_view name;         // for --device and Model
  std::string_view description;  // one line
};

// The devices of this build that are available on this machine: "cpu" (the default everywhere), "reference" (every
// operation in plain f64 code; slow, for tests and learning).
std::vector<DeviceInfo> devices();

// Throws std::invalid_argument, listing the names, unless a device of that name exists.
void require_device(std::string_view name);

}  // namespace qkv
