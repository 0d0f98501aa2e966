// SPDX-License-Identifier: Apache-2.0
#include "formats/families/family.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "formats/config_json.h"
#include "formats/in_quotes.h"

namespace qkv {
namespace {

using R = ParameterRole;

constexpr std::string_view kJoinedWeight = "blk.{layer}.attn_qkv.weight", kJoinedBias = "blk.{layer}.attn_qkv.bias";

bool is_any_of(R role, std::initializer_list<R> roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

std::string with_layer(std::string_view pattern, std::int64_t layer) {
  constexpr std::string_view kLayer = "{layer}";
  std::string name(pattern);
  if (const std::size_t at = name.find(kLayer); at != std::string::npos)
    name.replace(at, kLayer.size(), std::to_string(layer));
  return name;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += (text.empty() ? "" : ", ") + one;
  return text;
}

// The inherited members that also apply outside the layers.
LayerConfig outer_members(const LayerConfig& c) {
  LayerConfig outer;
  outer.norm = c.norm;
  outer.norm_gain = c.norm_gain;
  outer.norm_gain_offset = c.norm_gain_offset;
  outer.norm_bias = c.norm_bias;
  outer.norm_eps = c.norm_eps;
  outer.positions = c.positions;
  return outer;
}

// Resets members that have no effect.
LayerConfig effective(LayerConfig c) {
  if (c.positions != Positions::rotary) c.rope_theta = LayerConfig{}.rope_theta;
  if (c.rope_scaling.low_freq_factor == 0) c.rope_scaling.original_ctx_len = 0;
  return c;
}

std::string shortened(const nlohmann::ordered_json& value) {
  const std::string text = value.dump();
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

// Differing members, each once, as "rope_scaling.factor 4.0 instead of 1.0".
void add_misfits(const nlohmann::ordered_json& wanted, const nlohmann::ordered_json& found, const std::string& prefix,
                 const std::string& where, std::set<std::string>& known, std::vector<std::string>& list) {
  for (const auto& [key, value] : wanted.items()) {
    const nlohmann::ordered_json& other = found.at(key);
    const std::string name = prefix + key;
    if (value.is_object())
      add_misfits(value, other, name + ".", where, known, list);
    else if (value != other && known.insert(name).second)
      list.push_back(name + " " + shortened(value) + " instead of " + shortened(other) + where);
  }
}

std::vector<std::string> misfits(const ModelConfig& wanted, const ModelConfig& found) {
  std::vector<std::string> list;
  std::set<std::string> known;
  const auto add = [&](const nlohmann::ordered_json& a, const nlohmann::ordered_json& b, const std::string& where) {
    add_misfits(a, b, "", where, known, list);
  };
  add(members_json(wanted), members_json(found), "");
  if (wanted.n_layer != found.n_layer) return list;
  const bool differ = !wanted.layers.empty() || !found.layers.empty();
  if (differ) {  // the inherited members then describe the norms outside the layers and the position table
    add(members_json(outer_members(wanted)), members_json(outer_members(found)), "");
  }
  for (std::int64_t i = 0; i < (differ ? wanted.n_layer : 1); ++i)
    add(members_json(effective(wanted.layer(i))), members_json(effective(found.layer(i))),
        differ ? " in layer " + std::to_string(i) : "");
  return list;
}

}  // namespace

std::string_view tensor_name(const Family& family, FileFormat format, R role) noexcept {
  const bool hf = format == FileFormat::hugging_face;
  for (const std::span<const RoleName> names : {hf ? family.hf_names : family.gguf_names,  // own names first
                                                hf ? llama_hf_names : llama_gguf_names})
    for (const RoleName& name : names)
      if (name.role == role) return name.name;
  return {};
}

std::string_view type_in(const Family& family, FileFormat format) noexcept {
  return format == FileFormat::hugging_face ? family.hf_type : family.gguf_type;
}

const Family* find_family(FileFormat format, std::string_view type) noexcept {
  for (const Family* family : families())
    if (!type.empty() && type_in(*family, format) == type) return family;
  return nullptr;
}

std::string known_families(FileFormat format) {
  std::vector<std::string_view> types;
  for (const Family* family : families())
    if (!type_in(*family, format).empty()) types.push_back(type_in(*family, format));
  std::string text;
  for (std::size_t i = 0; i < types.size(); ++i)
    text += (i == 0 ? "" : i + 1 == types.size() ? " and " : ", ") + std::string(types[i]);
  return text;
}

const Family& fitting_family(FileFormat format, const ModelConfig& config,
                             const std::function<ModelConfig(const Family&)>& read_back) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  std::string nearest;  // the families that differ in the fewest members, with these members
  for (const Family* family : families()) {
    if (type_in(*family, format).empty()) continue;
    std::vector<std::string> list;
    std::size_t count = fewest;
    try {
      list = misfits(config, read_back(*family));
      count = list.size();
    } catch (const std::exception& error) {  // the read-back configuration is invalid
      list = {error.what()};
    }
    if (list.empty()) return *family;
    if (count > fewest) continue;
    if (count < fewest) nearest.clear();
    fewest = count;
    nearest += (nearest.empty() ? "from " : "; from ") + std::string(type_in(*family, format)) + " in " + joined(list);
  }
  throw std::invalid_argument(std::string(format == FileFormat::gguf ? "[gguf]" : "[hugging face]") +
                              " expected a model of one of the families " + known_families(format) +
                              "; found one that differs " + nearest);
}

std::vector<TensorPlace> tensor_places(const Family& family, FileFormat format, const ModelConfig& config,
                                       const std::vector<ParameterInfo>& infos,
                                       const std::function<bool(std::int64_t layer)>& joined_qkv) {
  const bool gguf = format == FileFormat::gguf;
  std::vector<TensorPlace> places;
  std::map<std::string, std::int64_t> filled;  // filled length of each tensor's axis
  for (const ParameterInfo& info : infos) {
    const ParameterKind kind = kind_of(info.role);
    const bool is_qk = is_any_of(info.role, {R::wq, R::bq, R::wk, R::bk});
    const bool is_qkv = is_qk || is_any_of(info.role, {R::wv, R::bv});
    std::string_view pattern = tensor_name(family, format, info.role);
    if (gguf && is_qkv && joined_qkv && joined_qkv(info.layer))
      pattern = kind == ParameterKind::bias ? kJoinedBias : kJoinedWeight;
    if (pattern.empty())
      throw std::invalid_argument("[family] expected a parameter of " + std::string(type_in(family, format)) +
                                  "; found " + info.name);
    const bool in_out = !gguf && family.hf_in_out && kind == ParameterKind::matrix;
    TensorPlace place;
    place.name = with_layer(pattern, info.layer);
    place.transposed = (kind == ParameterKind::matrix && !in_out) || kind == ParameterKind::head;
    place.axis = in_out ? 1 : 0;
    place.shape = place.transposed ? Dims{info.shape[1], info.shape[0]} : info.shape;
    place.count = place.shape[place.axis];
    place.first = filled[place.name];
    filled[place.name] += place.count;
    if (gguf && family.gguf_pairs && is_qk) place.head_dim = config.layer(info.layer).head_dim;
    place.may_be_missing = gguf && family.gguf_missing_biases && info.layer >= 0 && kind == ParameterKind::bias;
    places.push_back(std::move(place));
  }
  for (TensorPlace& place : places) place.shape[place.axis] = filled[place.name];
  return places;
}

std::vector<double> rotary_divisors(const LayerConfig& layer) {
  LayerConfig plain = layer;
  plain.rope_scaling = {};
  const std::vector<double> before = rotary_frequencies(plain), after = rotary_frequencies(layer);
  std::vector<double> divisors;
  for (std::size_t i = 0; i < before.size(); ++i) divisors.push_back(before[i] / after[i]);
  return divisors;
}

std::string name_in_layer(const ParameterInfo& info) {
  if (info.layer < 0) return info.name;
  return info.name.substr(info.name.find('.', info.name.find('.') + 1) + 1);  // strips "layers.3."
}

}  // namespace qkv
