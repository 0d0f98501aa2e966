// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace qkv {
namespace {

struct Entry {
  DeviceInfo info;
  std::shared_ptr<Device> (*make)();
  DeviceFacts (*facts)();
};
template <class D>
std::shared_ptr<Device> made() {
  static const auto device = std::make_shared<D>();
  return device;
}
template <class D>
constexpr Entry device_entry(std::string_view name, std::string_view description) {
  return {{name, description}, made<D>, D::facts};
}

// One line per device.
constexpr Entry kDevices[] = {
    device_entry<CpuDevice>("cpu", "CPU of this machine, f32 and bf16"),
    device_entry<ReferenceDevice>("reference", "plain f64 implementation, slow; for tests and learning"),
};

}  // namespace

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> infos;
  for (const Entry& entry : kDevices) infos.push_back(entry.info);
  return infos;
}

namespace {

const Entry& entry_of(std::string_view name) {
  std::string known;
  for (const Entry& entry : kDevices) {
    if (entry.info.name == name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.info.name);
  }
  throw std::invalid_argument("[device] expected one of " + known + "; found '" + std::string(name) + "'");
}

}  // namespace

std::shared_ptr<Device> find_device(std::string_view name) { return entry_of(name).make(); }

DeviceFacts device_facts(std::string_view name) { return entry_of(name).facts(); }

void require_device(std::string_view name) { entry_of(name); }

}  // namespace qkv
