// SPDX-License-Identifier: Apache-2.0
#include "common_options.h"

#include <stdexcept>

#include "qkv/device.h"

namespace qkv::cli {
namespace {

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "|") + word;
  return text;
}

}  // namespace

CLI::Option* add_device_option(CLI::App& command, std::string& device) {
  const auto known = [](const std::string& name) -> std::string {
    try {
      require_device(name);
      return {};
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  std::vector<std::string> names;
  for (const DeviceInfo& info : devices()) names.emplace_back(info.name);
  return command.add_option("--device", device, "Device to compute on (see qkv devices) [cpu]")
      ->check(known, "")
      ->type_name(listed(names));
}

CLI::Option* add_choice(CLI::App& command, const std::string& names, std::string& value,
                        const std::vector<std::string>& words, const std::string& help) {
  return command.add_option(names, value, help)
      ->check(CLI::IsMember(words).description(""))
      ->type_name(listed(words))
      ->capture_default_str();
}

}  // namespace qkv::cli
