// SPDX-License-Identifier: Apache-2.0
// LoRA adapters in PEFT's names and file format.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "core/convert_elements.h"
#include "core/parallel.h"
#include "core/random.h"
#include "formats/hf_config.h"
#include "formats/in_quotes.h"
#include "formats/safetensors.h"
#include "formats/strict_json.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "qkv/lora.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestConfig = 1 << 20;
constexpr std::int64_t kMaxLoraRank = std::int64_t{1} << 20;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("[lora] " + message); }

const Family* family_of(const ModelConfig& config) {
  try {
    return &hf_family_of(config);
  } catch (const std::invalid_argument&) {
    return nullptr;  // qkv's own names
  }
}

// An adaptable matrix of a layer: its module and qkv's parameter names in it.
struct Place {
  LoraModule module;
  std::vector<std::string> names;  // "wq", ...
  std::int64_t in = 0, out = 0;
};

std::vector<Place> places_of(const ModelConfig& config, const Family* family) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<Place> places;
  const std::vector<ParameterInfo> infos = parameter_infos(config);
  std::vector<TensorPlace> tensors;
  if (family) tensors = tensor_places(*family, FileFormat::hugging_face, config, infos);
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (kind_of(infos[i].role) != ParameterKind::matrix) continue;
    std::string module = family ? tensors[i].name : infos[i].name;
    if (module.ends_with(kWeight)) module.resize(module.size() - kWeight.size());
    if (places.empty() || places.back().module.name != module)
      places.push_back({{module, {}}, {}, infos[i].shape[0], 0});
    places.back().module.parameters.push_back(i);
    places.back().names.push_back(name_in_layer(infos[i]));
    places.back().out += infos[i].shape[1];
  }
  return places;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check_targets(const std::vector<Place>& places, const std::set<std::string>& targets) {
  if (targets.empty()) refuse("targets expected at least one matrix; found none");
  std::vector<std::string> known;
  for (const Place& place : places)
    for (const std::string& name : place.names)
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  for (const std::string& target : targets)
    if (std::find(known.begin(), known.end(), target) == known.end())
      refuse("targets expected names from " + listed(known) + "; found " + in_quotes(target));
  for (const Place& place : places) {
    const auto chosen =
        std::count_if(place.names.begin(), place.names.end(), [&](const auto& name) { return targets.contains(name); });
    if (chosen != 0 && chosen != static_cast<std::ptrdiff_t>(place.names.size()))
      refuse("targets expected all or none of " + listed(place.names) + ", which are one matrix in " +
             place.module.name + "; found " + listed({targets.begin(), targets.end()}));
  }
}

template <class T>
void draw(std::uint64_t seed, std::uint64_t stream, Tensor& a) {
  constexpr std::uint64_t kStreams = std::uint64_t{1} << 40;  // disjoint from the streams of a model's parameters
  const Random random(seed, kStreams + stream);
  const double bound = 1 / std::sqrt(static_cast<double>(a.shape()[1]));
  for (std::int64_t i = 0; i < a.size(); ++i)
    a.data<T>()[i] = static_cast<T>(bound * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
}

// The last one or two components of a module's name: "c_proj", "attn.c_proj".
std::string tail(const std::string& name, int parts) {
  std::size_t dot = name.size();
  for (int i = 0; i < parts && dot != std::string::npos; ++i) dot = name.rfind('.', dot - 1);
  return name.substr(dot + 1);
}

// Shortest module suffixes unique within a layer: "q_proj", "wq"; "attn.c_proj" where "mlp.c_proj" exists too.
std::vector<std::string> target_modules(const LoraAdapters& adapters, const std::vector<Place>& places,
                                        const std::vector<ParameterInfo>& infos) {
  std::set<std::pair<std::int64_t, std::string>> last;  // (layer, last component) of all adaptable matrices
  const auto is_unique = [&](const Place& place) {
    return last.emplace(infos[place.module.parameters[0]].layer, tail(place.module.name, 1)).second;
  };
  const int parts = std::all_of(places.begin(), places.end(), is_unique) ? 1 : 2;
  std::vector<std::string> targets;
  for (const LoraModule& module : adapters.modules)
    if (const std::string target = tail(module.name, parts);
        std::find(targets.begin(), targets.end(), target) == targets.end())
      targets.push_back(target);
  return targets;
}

// Throws for unsupported options that would change the computation.
void reject_unsupported(const JsonPlace& file) {
  const auto only = [&](const char* key, const char* what, bool fits) {
    if (!fits) file.at(key).fail(std::string("only ") + what + " is supported");
  };
  if (file.at("peft_type").string() != "LORA") file.at("peft_type").fail("expected LORA");
  only("use_dora", "false", !file.boolean_or("use_dora", false));
  only("lora_bias", "false", !file.boolean_or("lora_bias", false));
  only("bias", "none", file.string_or("bias", "none") == "none");
  for (const char* key : {"modules_to_save", "trainable_token_indices", "layer_replication", "target_parameters"})
    only(key, "null", !file.has(key) || (file.at(key).value().is_array() && file.at(key).value().empty()));
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    only(key, "an empty object", !file.has(key) || file.at(key).object().empty());
}

class LoraReader {
 public:
  LoraReader(const std::string& directory, const ModelConfig& config)
      : config_path_(directory + "/adapter_config.json"), tensors_(directory + "/adapter_model.safetensors") {
    const nlohmann::json json = load_json(config_path_, kLargestConfig);
    const JsonPlace file(config_path_, json);
    reject_unsupported(file);
    adapters_.rank = file.at("r").integer(1, kMaxLoraRank);
    adapters_.alpha = file.at("lora_alpha").number();
    const double rank = static_cast<double>(adapters_.rank);
    adapters_.scale = adapters_.alpha / (file.boolean_or("use_rslora", false) ? std::sqrt(rank) : rank);
    if (!std::isfinite(adapters_.scale)) file.at("lora_alpha").fail("expected a finite number");
    adapters_.base = file.string_or("base_model_name_or_path", "");
    places_ = places_of(config, family_of(config));
  }

  LoraAdapters read() {
    std::size_t used = 0;
    for (const Place& place : places_) {
      const std::string prefix = "base_model.model." + place.module.name;
      const std::string a = prefix + ".lora_A.weight", b = prefix + ".lora_B.weight";
      if (!tensors_.has(a) && !tensors_.has(b)) continue;
      adapters_.modules.push_back(place.module);
      adapters_.values.push_back(tensor(a, {adapters_.rank, place.in}));
      adapters_.values.push_back(tensor(b, {place.out, adapters_.rank}));
      used += 2;
    }
    if (used == 0 || used != tensors_.tensors().size()) refuse_the_rest();
    return std::move(adapters_);
  }

 private:
  Tensor tensor(const std::string& name, const Dims& shape) const {
    const std::string where = "tensor " + in_quotes(name) + ": ";
    if (!tensors_.has(name)) throw FileError(tensors_.path(), where + "is missing");
    const ConstView stored = tensors_.find(name);
    const bool readable = stored.dtype == DType::f32 || stored.dtype == DType::f16 || stored.dtype == DType::bf16 ||
                          stored.dtype == DType::f64;
    if (!readable || !(stored.shape == shape))
      throw FileError(tensors_.path(), where + "expected " + to_string(shape) + " of F32, F16, BF16 or F64; found " +
                                           to_string(stored.shape) + " of " + std::string(dtype_name(stored.dtype)));
    Tensor values(shape);  // as stored in the file
    convert_elements(stored, values.view());
    for (std::int64_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values.data<float>()[i])) throw FileError(tensors_.path(), where + "contains NaN or infinity");
    return values;
  }

  [[noreturn]] void refuse_the_rest() const {
    std::set<std::string> used;
    for (std::size_t i = 0; i < adapters_.values.size(); ++i) used.insert(adapters_.tensor_name(i));
    for (const SafetensorsFile::Entry& entry : tensors_.tensors())
      if (!used.contains(entry.name))
        throw FileError(tensors_.path(),
                        "tensor " + in_quotes(entry.name) + ": is not an adapter of a matrix of this model");
    throw FileError(tensors_.path(), "contains no adapters");
  }

  std::string config_path_;
  SafetensorsFile tensors_;
  LoraAdapters adapters_;
  std::vector<Place> places_;
};

}  // namespace

LoraAdapters make_lora(const ModelConfig& config, const LoraOptions& options, std::uint64_t seed, DType dtype) {
  const ModelConfig c = config.resolved();
  const std::set<std::string> targets(options.targets.begin(), options.targets.end());
  if (options.rank < 1 || options.rank > kMaxLoraRank)
    refuse("rank expected 1 or more; found " + std::to_string(options.rank));
  if (!(options.alpha > 0) || !std::isfinite(options.alpha))
    refuse("alpha expected a number above 0; found " + std::to_string(options.alpha));
  if (dtype != DType::f32 && dtype != DType::f64)
    refuse("dtype expected f32 or f64; found " + std::string(dtype_name(dtype)));
  const std::vector<Place> places = places_of(c, family_of(c));
  check_targets(places, targets);
  LoraAdapters adapters{options.rank, options.alpha, options.alpha / static_cast<double>(options.rank), {}, {}, {}};
  for (const Place& place : places) {
    if (!targets.contains(place.names.front())) continue;
    if (options.rank > std::min(place.in, place.out))
      refuse("rank expected at most the smaller side of " + place.module.name + ", " +
             std::to_string(std::min(place.in, place.out)) + "; found " + std::to_string(options.rank));
    Tensor a(Dims{options.rank, place.in}, dtype);  // [rank, in]
    const auto stream = static_cast<std::uint64_t>(adapters.modules.size());
    dtype == DType::f64 ? draw<double>(seed, stream, a) : draw<float>(seed, stream, a);
    adapters.modules.push_back(place.module);
    adapters.values.push_back(std::move(a));
    adapters.values.emplace_back(Dims{place.out, options.rank}, dtype);  // zeros
  }
  return adapters;
}

void save_lora(const std::string& directory, const ModelConfig& config, const LoraAdapters& adapters) {
  const ModelConfig c = config.resolved();
  const Family* family = family_of(c);
  const double rank = static_cast<double>(adapters.rank);
  const nlohmann::ordered_json file = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", adapters.base},
      {"r", adapters.rank},
      {"lora_alpha", adapters.alpha},
      {"use_rslora", adapters.scale != adapters.alpha / rank},
      {"lora_dropout", 0.0},
      {"target_modules", target_modules(adapters, places_of(c, family), parameter_infos(c))},
      {"fan_in_fan_out", family && family->hf_in_out},
      {"bias", "none"},
      {"modules_to_save", nullptr},
      {"inference_mode", true}};
  std::vector<NamedView> tensors;
  for (std::size_t i = 0; i < adapters.values.size(); ++i) {
    const Tensor& value = adapters.values[i];
    tensors.push_back(
        {adapters.tensor_name(i), {nullptr, DType::f32, value.shape(), contiguous_strides(value.shape())}, [&value] {
           Tensor copy(value.shape());  // same shape as the value
           convert_elements(value.view(), copy.view());
           return copy;
         }});
  }
  make_directories(directory);
  replace_file(directory + "/adapter_config.json",
               file.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  write_safetensors(directory + "/adapter_model.safetensors", std::move(tensors), {{"format", "pt"}});
}

LoraAdapters load_lora(const std::string& directory, const ModelConfig& config) {
  return LoraReader(directory, config.resolved()).read();
}

}  // namespace qkv
