// SPDX-License-Identifier: Apache-2.0
// The devices that models run on.
#pragma once

#include <string_view>
#include <vector>

namespace qkv {

struct DeviceInfo {
  std::string_view name;         // what --device and Model take
  std::string_view description;  // one line
};

// Those of this build that this machine can run: "cpu" (the default everywhere), "reference" (every operation written
// out in f64, slow: for tests and for learning).
std::vector<DeviceInfo> devices();

// Throws std::invalid_argument that lists the names, unless there is a device of that name.
void require_device(std::string_view name);

}  // namespace qkv
