// SPDX-License-Identifier: Apache-2.0
// Configurations as dicts.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <qkv/model_members.h>
#include <qkv/train_config.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

[[noreturn]] void fail(const std::string& expected, nb::handle found) {
  throw std::invalid_argument("[config] " + expected + "; found " + shown_text(found));
}

std::string text(nb::handle value) {
  std::string result;
  if (!nb::try_cast(value, result)) fail("expected a string", value);
  return result;
}

template <class Enum, std::size_t N>
Enum named(const char* member, const std::array<std::string_view, N>& names, nb::handle value) {
  const std::string name = text(value);
  std::string all;
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    all += (i ? ", " : "") + std::string(names[i]);
  }
  fail(std::string(member) + " must be one of " + all, value);
}

// Converts a member to Python and back.
nb::object value_of(Schedule schedule) { return nb::cast(to_string(schedule)); }
nb::object value_of(DType dtype) { return nb::cast(dtype_name(dtype)); }
template <class T>
nb::object value_of(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return nb::cast(enum_name(value));
  else
    return nb::cast(value);
}

void set(const char*, Schedule& schedule, nb::handle value) { schedule = schedule_from(text(value)); }
void set(const char*, DType& dtype, nb::handle value) { dtype = dtype_from_name(text(value)); }
template <class T>
requires std::is_enum_v<T>
void set(const char* name, T& member, nb::handle value) { member = named<T>(name, kEnumNames<T>, value); }
template <class T>
requires(!std::is_enum_v<T>) void set(const char* name, T& member, nb::handle value) {
  const char* kind = std::is_same_v<T, bool>       ? " must be True or False"
                     : std::is_floating_point_v<T> ? " must be a number"
                     : std::is_integral_v<T>       ? " must be an integer in range"
                                                   : " must be numbers";
  if (!nb::try_cast(value, member)) fail(name + std::string(kind), value);
}

// Visits each member by its Python name; the RoPE scaling members are flattened, prefixed with rope_.
template <class Config, class Visit>
void members(Config& c, const Visit& visit) {
  for_each_member(c, visit);
  if constexpr (std::is_base_of_v<LayerConfig, std::remove_const_t<Config>>) {
    for_each_member(c.rope_scaling,
                    [&](const std::string& name, auto& member) { visit(("rope_" + name).c_str(), member); });
  }
}

template <class Config>
nb::dict dict_of(const Config& config) {
  nb::dict result;
  members(config, [&](const char* name, const auto& member) { result[name] = value_of(member); });
  return result;
}

template <class Config>
void update_from(Config& config, const nb::dict& values) {
  for (const auto& [key, value] : values) {
    const std::string wanted = text(key);
    bool known = false;
    std::string names;
    members(config, [&, value = value](const char* name, auto& member) {
      names += (names.empty() ? "" : ", ") + std::string(name);
      if (wanted != name) return;
      known = true;
      set(name, member, value);
    });
    if (!known) fail("expected one of " + names, key);
  }
}

}  // namespace

// layers: for each layer, a dict of the members that differ from the model's common ones.
nb::dict to_dict(const ModelConfig& config) {
  nb::dict result = dict_of(config);
  if (config.layers.empty()) return result;
  const nb::dict common = dict_of<LayerConfig>(config);
  nb::list layers;
  for (const LayerConfig& layer : config.layers) {
    nb::dict own;
    for (const auto& [key, value] : dict_of(layer))
      if (!value.equal(common[key])) own[key] = value;
    layers.append(own);
  }
  result["layers"] = layers;
  return result;
}

void update(ModelConfig& config, const nb::dict& values) {
  nb::dict others;
  for (const auto& [key, value] : values)
    if (text(key) != "layers") others[key] = value;
  update_from(config, others);
  if (!values.contains("layers")) return;
  nb::list layers;
  if (!nb::try_cast(values["layers"], layers)) fail("expected layers to be a list of dicts", values["layers"]);
  config.layers.clear();
  for (nb::handle differences : layers) {
    nb::dict own;
    if (!nb::try_cast(differences, own)) fail("expected layers to be a list of dicts", differences);
    update_from<LayerConfig>(config.layers.emplace_back(config), own);
  }
}
nb::dict to_dict(const TrainConfig& config) { return dict_of(config); }
void update(TrainConfig& config, const nb::dict& values) { update_from(config, values); }

}  // namespace qkv::python
