// SPDX-License-Identifier: Apache-2.0
// ANDREA: RMSNorm without gain after the embeddings and before each sub-layer, learned positions, ReLU. Its checkpoints
// have their own format (formats/andrea.cc); this file has their names, layouts and configurations.
#include "formats/families/andrea.h"

#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "formats/config_json.h"
#include "formats/families/family.h"
#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "os/atomic_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestJson = std::size_t{1} << 26;

using R = ParameterRole;

// Names in `order` that differ from qkv's.
constexpr RoleName kNames[] = {{R::token_embedding, "wte"}, {R::position_embedding, "wpe"},
                               {R::head, "lm_head"},        {R::w_up, "fc1"},
                               {R::w_down, "fc2"},          {R::w_gate, "gate"}};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names(1);
  for (const char c : list) {
    if (c == ',')
      names.emplace_back();
    else if (c != ' ')
      names.back() += c;
  }
  return names;
}

}  // namespace

std::vector<AndreaPlace> andrea_places(const AndreaLayout& layout, const std::vector<ParameterInfo>& infos) {
  std::map<std::pair<std::int64_t, std::string>, std::size_t> known;  // by layer and by either name
  for (std::size_t i = 0; i < infos.size(); ++i) {
    known.emplace(std::pair(infos[i].layer, name_in_layer(infos[i])), i);
    for (const RoleName& name : kNames)
      if (name.role == infos[i].role) known.emplace(std::pair(infos[i].layer, name.name), i);
  }
  std::vector<AndreaPlace> places;
  std::set<std::size_t> used;
  std::int64_t first = 0;
  const auto add = [&](std::int64_t layer, const std::string& name) {
    const auto found = known.find({layer, name});
    if (found == known.end() || !used.insert(found->second).second)
      throw std::invalid_argument(
          "[andrea] order expected each parameter of the configuration once; found " + in_quotes(name) +
          (found == known.end() ? ", which is not a parameter of the model or its layers" : " twice"));
    const ParameterInfo& info = infos[found->second];
    const ParameterKind kind = kind_of(info.role);
    const bool product = kind == ParameterKind::matrix || kind == ParameterKind::head;
    places.push_back({found->second, first, product && layout.out_in});
    first += element_count(info.shape);
  };
  const std::vector<std::string> names = split(layout.order);
  const auto of_model = [&](const std::string& name) { return known.contains({-1, name}); };
  for (std::size_t i = 0; i < names.size();) {
    if (of_model(names[i])) {
      add(-1, names[i++]);
      continue;
    }
    std::size_t end = i;  // a run of adjacent layer names
    while (end < names.size() && !of_model(names[end])) ++end;
    for (std::int64_t layer = 0; layer < layout.config.n_layer; ++layer)
      for (std::size_t k = i; k < end; ++k) add(layer, names[k]);
    i = end;
  }
  if (places.size() != infos.size())
    for (std::size_t i = 0; i < infos.size(); ++i)
      if (!used.contains(i))
        throw std::invalid_argument("[andrea] order expected each parameter of the configuration once; " +
                                    in_quotes(infos[i].name) + " is missing");
  return places;
}

ConstView andrea_view(const AndreaPlace& place, const ParameterInfo& info, const std::byte* elements) {
  Dims stored = info.shape;
  if (place.transposed) stored = {info.shape[1], info.shape[0]};
  const ConstView view{elements + 4 * place.first, DType::f32, stored, contiguous_strides(stored)};
  return place.transposed ? swap_axes(view, 0, 1) : view;
}

std::vector<std::string> read_harris_segments(const std::string& path) {
  const nlohmann::json json = load_json(path, kLargestJson);
  const nlohmann::json* list = &json;
  std::string where = "the file";
  if (json.is_object()) {
    list = nullptr;
    for (const auto& [key, value] : json.items()) {
      if (!value.is_array()) continue;
      if (list) throw FileError(path, "expected one list of segments; found " + where + " and " + in_quotes(key));
      list = &value;
      where = in_quotes(key);
    }
    if (!list) throw FileError(path, "expected a list of segments; found none");
  }
  std::vector<std::string> segments;
  std::set<std::string_view> seen;
  for (const JsonPlace& place : JsonPlace(path, *list, where).list()) {
    if (place.string().empty()) place.fail("an empty segment");
    if (!seen.insert(place.string()).second) place.fail(in_quotes(place.string()) + " occurs twice");
    segments.push_back(place.string());
  }
  return segments;
}

AndreaLayout read_andrea_json(const std::string& path) {
  const nlohmann::json json = load_json(path, kLargestJson);
  const JsonPlace file(path, json);
  file.only({"qkv_andrea", "order", "matrices", "tokens", "config"});
  if (file.at("qkv_andrea").integer(0, 1 << 30) != 1) file.at("qkv_andrea").fail("expected version 1");
  const auto choice = [&](const char* key, const char* yes, const char* no) {
    const std::string& word = file.at(key).string();
    if (word != yes && word != no) file.at(key).fail(std::string("expected ") + yes + " or " + no);
    return word == yes;
  };
  AndreaLayout layout;
  layout.order = file.at("order").string();
  layout.out_in = choice("matrices", "out_in", "in_out");
  layout.bytes_first = choice("tokens", "bytes_first", "segments_first");
  layout.config = read_config_json(file.at("config"));
  return layout;
}

void write_andrea_json(const std::string& path, const AndreaLayout& layout) {
  const nlohmann::ordered_json file = {{"qkv_andrea", 1},
                                       {"order", layout.order},
                                       {"matrices", layout.out_in ? "out_in" : "in_out"},
                                       {"tokens", layout.bytes_first ? "bytes_first" : "segments_first"},
                                       {"config", config_json(layout.config)}};
  replace_file(path, file.dump(2) + "\n");
}

std::string sibling(const std::string& path, const char* name) {
  return (std::filesystem::path(path).parent_path() / name).string();
}

AndreaLayout choose_andrea_layout(const std::string& path, const std::optional<AndreaLayout>& given,
                                  std::int64_t segments, std::int64_t n_params) {
  const std::int64_t vocab_size = segments + 257;
  const std::string beside = sibling(path, "andrea.json");
  std::error_code ignored;
  std::optional<AndreaLayout> layout = given;
  if (!layout && std::filesystem::exists(beside, ignored)) layout = read_andrea_json(beside);
  if (!layout) {
    std::string counts;
    for (const char* name : {"andrea-12m", "andrea-120m", "andrea-480m"}) {
      AndreaLayout preset_layout;
      preset_layout.config = preset(name);
      preset_layout.config.vocab_size = vocab_size;
      const std::int64_t count = parameter_count(preset_layout.config);
      if (count == n_params) return preset_layout;
      counts += (counts.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(count);
    }
    throw FileError(path, 4,
                    "contains " + std::to_string(n_params) + " parameters; with " + std::to_string(segments) +
                        " segments the presets have " + counts + "; specify the configuration");
  }
  if (layout->config.vocab_size == 0) layout->config.vocab_size = vocab_size;
  try {
    layout->config = layout->config.resolved();
    // Checked before allocating layer names: a few bytes of configuration can request any number of layers.
    if (layout->config.n_layer > n_params)
      throw FileError(path, 4,
                      "contains " + std::to_string(n_params) + " parameters, too few for the " +
                          std::to_string(layout->config.n_layer) + " layers of the configuration");
    const std::int64_t count = parameter_count(layout->config);
    if (count != n_params)
      throw FileError(
          path, 4,
          "contains " + std::to_string(n_params) + " parameters; the configuration has " + std::to_string(count));
    andrea_places(*layout, parameter_infos(layout->config));
  } catch (const std::invalid_argument& error) {
    throw FileError(path, error.what());
  }
  return *layout;
}

}  // namespace qkv
