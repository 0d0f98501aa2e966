// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "formats/strict_json.h"
#include "qkv/andrea.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr const char* kFile = "optimizer.safetensors";

std::vector<Tensor> read_moments(const SafetensorsFile& file, const std::string& prefix, const Model& model) {
  std::vector<Tensor> moments = model.zeros_like_parameters();
  for (std::size_t i = 0; i < moments.size(); ++i) file.read(prefix + model.infos()[i].name, moments[i].view());
  return moments;
}

// The step from checkpoint.json of a training run's checkpoint, or from the metadata.
std::int64_t read_step(const std::string& directory, const SafetensorsFile& file) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  const std::string path = directory + "/checkpoint.json";
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    const nlohmann::json json = load_json(path, std::size_t{1} << 24);
    return JsonPlace(path, json).at("state").at("step").integer(0, kMax);
  }
  std::int64_t step = -1;
  if (const auto text = file.metadata().find("step"); text != file.metadata().end())
    std::from_chars(text->second.data(), text->second.data() + text->second.size(), step);
  if (step < 0 || step > kMax) throw FileError(file.path(), "expected the step in its metadata; found none");
  return step;
}

}  // namespace

std::optional<AdamState> load_adam_state(const std::string& directory, const Model& model) {
  const std::string path = directory + "/" + kFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const SafetensorsFile file(path);
  for (const SafetensorsFile::Entry& own : file.tensors())
    if (!own.name.starts_with("adamw.")) return std::nullopt;
  return AdamState{read_step(directory, file), read_moments(file, "adamw.m.", model),
                   read_moments(file, "adamw.v.", model)};
}

void save_adam_state(const std::string& directory, const Model& model, const AdamState& state) {
  std::vector<NamedView> tensors;
  for (std::size_t i = 0; i < model.infos().size(); ++i) {
    tensors.push_back({"adamw.m." + model.infos()[i].name, state.first_moments.at(i).view()});
    tensors.push_back({"adamw.v." + model.infos()[i].name, state.second_moments.at(i).view()});
  }
  write_safetensors(directory + "/" + kFile, std::move(tensors),
                    {{"format", "qkv-optimizer"}, {"version", "1"}, {"step", std::to_string(state.step)}});
}

}  // namespace qkv
