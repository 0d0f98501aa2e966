// SPDX-License-Identifier: Apache-2.0
// qkv devices: the compute devices of this build, and their hardware on this machine.
#include "qkv/device.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "qkv/device_facts.h"

namespace {

using Json = nlohmann::ordered_json;

Json facts() {
  Json all = Json::array();
  for (const qkv::DeviceInfo& info : qkv::devices()) {
    const qkv::DeviceFacts facts = qkv::device_facts(info.name);
    Json compute_dtype = Json::array(), settings = Json::object();
    for (const qkv::DType type : facts.compute_dtypes) compute_dtype.push_back(qkv::dtype_name(type));
    for (const auto& [name, value] : facts.settings) settings[name] = value;
    all.push_back({{"name", info.name},
                   {"description", info.description},
                   {"hardware", facts.hardware},
                   {"dtype", qkv::dtype_name(facts.stream_type)},
                   {"compute_dtype", compute_dtype},
                   {"threads", facts.threads},
                   {"memory_bytes", facts.memory},
                   {"available_memory_bytes", facts.available_memory},
                   {"settings", settings}});
  }
  return all;
}

std::string text_of(const Json& all) {
  std::string text;
  for (const Json& device : all) {
    text += fmt::format("{}: {}\n", device["name"].get<std::string>(), device["description"].get<std::string>());
    const auto line = [&](const std::string& name, const std::string& value) {
      text += fmt::format("  {:<14}{}\n", name, value);
    };
    const auto gigabytes = [&](const char* key) { return device[key].get<double>() * 1e-9; };
    line("hardware", device["hardware"].get<std::string>());
    std::string types;
    for (const Json& type : device["compute_dtype"]) types += (types.empty() ? "" : ", ") + type.get<std::string>();
    line("matmul types", types);
    line("threads", device["threads"].dump());
    line("memory",
         fmt::format("{:.1f} GB, {:.1f} GB available", gigabytes("memory_bytes"), gigabytes("available_memory_bytes")));
    for (const auto& [name, value] : device["settings"].items()) line(name, value.get<std::string>());
  }
  return text;
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List compute devices, with hardware and settings");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON array");
  qkv::cli::add_threads_option(*command);
  command->callback([json] { qkv::cli::print(*json ? facts().dump(2) + "\n" : text_of(facts())); });
}

const qkv::cli::Subcommand kDevices(55, add);

}  // namespace
