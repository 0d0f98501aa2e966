// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace qkv {
namespace {

// One line per device.
struct Entry {
  DeviceInfo info;
  std::shared_ptr<Device> (*make)();
};
template <class D>
std::shared_ptr<Device> made() {
  static const auto device = std::make_shared<D>();
  return device;
}
constexpr Entry kDevices[] = {
    {{"cpu", "the processors of this machine, f32 and bf16"}, made<CpuDevice>},
    {{"reference", "every operation written out in f64, slow: for tests and for learning"}, made<ReferenceDevice>},
};

}  // namespace

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> infos;
  for (const Entry& entry : kDevices) infos.push_back(entry.info);
  return infos;
}

std::shared_ptr<Device> find_device(std::string_view name) {
  std::string known;
  for (const Entry& entry : kDevices) {
    if (entry.info.name == name) return entry.make();
    known += (known.empty() ? "" : ", ") + std::string(entry.info.name);
  }
  throw std::invalid_argument("[device] expected one of " + known + "; found '" + std::string(name) + "'");
}

void require_device(std::string_view name) { find_device(name); }

}  // namespace qkv
