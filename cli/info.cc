// SPDX-License-Identifier: Apache-2.0
// qkv info: a model's configuration, tensors, parameter counts, memory and FLOPs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "number_options.h"
#include "qkv/chat_template.h"
#include "qkv/display_text.h"
#include "qkv/measure.h"
#include "qkv/model.h"
#include "qkv/model_file.h"
#include "qkv/model_members.h"

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string path, model, preset, config;
  bool json = false;
};

// Members as JSON; members that most models do not use only if they differ from the default.
class Members {
 public:
  explicit Members(Json& facts) : facts_(facts) {}
  template <class T>
  void operator()(const char* name, const T& value) const {
    if constexpr (std::is_enum_v<T>)
      facts_[name] = qkv::enum_name(value);
    else
      facts_[name] = value;
  }

 private:
  Json& facts_;
};

// The members of a layer that differ from the model's.
Json differences(const qkv::LayerConfig& layer, const qkv::LayerConfig& all) {
  Json own, common, facts = Json::object();
  for_each_member(layer, Members(own));
  for_each_member(all, Members(common));
  for (const auto& [name, value] : own.items())
    if (value != common[name]) facts[name] = value;
  if (layer.rope_scaling != all.rope_scaling) for_each_member(layer.rope_scaling, Members(facts["rope_scaling"]));
  return facts;
}

Json configuration(const qkv::ModelConfig& c) {
  Json facts;
  for_each_member(c, Members(facts));
  if (c.rope_scaling != qkv::RopeScaling{}) for_each_member(c.rope_scaling, Members(facts["rope_scaling"]));
  for (const qkv::LayerConfig& layer : c.layers) facts["layers"].push_back(differences(layer, c));
  return facts;
}

// All facts as JSON; the text output is generated from it.
Json facts(const qkv::ModelConfig& c) {
  Json tensors = Json::array();
  for (const qkv::ParameterInfo& info : qkv::parameter_infos(c)) {
    tensors.push_back({{"name", info.name}, {"shape", info.shape}, {"decays", info.decays()}});
  }
  const std::int64_t count = qkv::parameter_count(c);
  const std::int64_t position_rows = c.positions == qkv::Positions::learned ? c.ctx_len : 0;
  return {{"config", configuration(c)},
          {"tensors", tensors},
          {"parameters", count},
          {"parameters_without_embeddings", count - (c.vocab_size + position_rows) * c.d_model},
          {"matrix_parameters", qkv::matrix_parameters(c)},
          {"memory_bytes",
           {{"weights", 4 * count},
            {"gradients", 4 * count},
            {"optimizer", 8 * count},
            {"kv_cache", qkv::kv_cache_bytes(c, c.ctx_len)}}},
          {"forward_flops_per_token", qkv::forward_flops_per_token(c, c.ctx_len)},
          {"training_flops_per_token", qkv::training_flops_per_token(c, c.ctx_len)}};
}

std::string size_text(std::int64_t bytes) {
  const double size = static_cast<double>(bytes);
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", size * 1e-6) : fmt::format("{:.2f} GB", size * 1e-9);
}

std::string shape_text(const Json& shape) {
  return fmt::format("[{}]", fmt::join(shape.get<std::vector<std::int64_t>>(), ", "));
}

// Number of tensors per type, and their bytes.
std::string stored_text(const Json& stored) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> types;
  for (const Json& tensor : stored) {
    auto& [count, bytes] = types[tensor["type"]];
    ++count;
    bytes += tensor["bytes"].get<std::int64_t>();
  }
  std::string text = "stored\n";
  for (const auto& [type, sum] : types)
    text += fmt::format("  {:<8}{:>5} tensors {:>16} bytes\n", type, sum.first,
                        qkv::with_commas(std::to_string(sum.second)));
  return text;
}

std::string value_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// "window 512", "full attention", "rope_theta 1000000.0", "no sinks"
std::string difference_text(const std::string& key, const Json& value) {
  if (key == "window_left")
    return value.get<std::int64_t>() < 0 ? "full attention" : fmt::format("window {}", value.get<std::int64_t>() + 1);
  if (value.is_boolean()) return (value.get<bool>() ? "" : "no ") + key;
  return key + " " + value_text(value);
}

// "0-4, 6-10"
std::string ranges_text(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t first = numbers[i];
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
    if (numbers[i] > first) text += fmt::format("-{}", numbers[i]);
  }
  return text;
}

// The differences between layers, one line per group of equal layers.
std::string layers_text(const Json& config) {
  std::vector<std::string> keys;
  for (const Json& layer : config["layers"])
    for (const auto& [key, value] : layer.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::vector<std::pair<std::string, std::vector<std::size_t>>> kinds;
  for (std::size_t i = 0; i < config["layers"].size(); ++i) {
    std::vector<std::string> parts;
    for (const std::string& key : keys)
      parts.push_back(difference_text(key, config["layers"][i].value(key, config.value(key, Json("none")))));
    const std::string text = fmt::format("{}", fmt::join(parts, ", "));
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& known) { return known.first == text; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {text, {}});
    kind->second.push_back(i);
  }
  std::string text = "layers\n";
  for (const auto& [what, numbers] : kinds)
    text += fmt::format("  {:<16}{}\n", ranges_text(numbers), what.empty() ? "as above" : what);
  return text;
}

// The main members always, all others only if they differ from the default; --json has all.
std::string configuration_text(const Json& config) {
  static const std::set<std::string> kAlways = {
      "n_layer", "n_head",    "n_kv_head",  "head_dim",  "v_head_dim",  "d_model",        "d_ff",       "vocab_size",
      "ctx_len", "norm",      "norm_gain",  "norm_bias", "norm_eps",    "embedding_norm", "final_norm", "activation",
      "gated",   "positions", "rope_theta", "qkv_bias",  "output_bias", "mlp_bias",       "tied_head"};
  const Json usual = configuration(qkv::ModelConfig{});
  std::string text = "configuration\n";
  for (const auto& [key, value] : config.items())
    if (key != "layers" && (kAlways.count(key) > 0 || !usual.contains(key) || value != usual[key]))
      text += fmt::format("  {:<16}{}\n", key, value_text(value));
  return config.contains("layers") ? text + layers_text(config) : text;
}

std::string text_of(const Json& facts) {
  std::string text;
  if (facts.contains("format")) {
    text += fmt::format("file\n  {:<16}{}\n", "format", facts["format"].get<std::string>());
    for (const Json& note : facts["notes"])
      text += fmt::format("  {:<16}{}\n", note[0].get<std::string>(), note[1].get<std::string>());
  }
  text += configuration_text(facts["config"]);
  if (facts.contains("tokenizer_size")) {
    const auto ends = facts["end_tokens"].get<std::vector<int>>();
    text += fmt::format("tokenizer\n  {} tokens, end token{} {}\n", facts["tokenizer_size"].dump(),
                        ends.size() > 1 ? "s" : "", ends.empty() ? "-1" : fmt::format("{}", fmt::join(ends, ", ")));
    std::vector<std::string> names;
    for (const auto& [name, id] : facts["named_tokens"].items())
      if (id.get<int>() >= 0) names.push_back(name + " " + id.dump());
    if (!names.empty()) text += fmt::format("  special tokens {}\n", fmt::join(names, ", "));
    if (!facts["chat_template"].is_null())
      text += fmt::format("  chat template {}\n", facts["chat_template"].get<std::string>());
  }
  if (facts.contains("stored")) text += stored_text(facts["stored"]);
  text += "tensors\n";
  std::size_t width = 0;
  for (const Json& tensor : facts["tensors"]) width = std::max(width, tensor["name"].get<std::string>().size());
  for (const Json& tensor : facts["tensors"]) {
    text += fmt::format("  {:<{}}  {}\n", tensor["name"].get<std::string>(), width, shape_text(tensor["shape"]));
  }
  const Json& memory = facts["memory_bytes"];
  const auto count = [&](const char* key) { return qkv::with_commas(facts[key].dump()); };
  text += fmt::format("parameters\n  {:>15}  total\n  {:>15}  excluding embeddings\n  {:>15}  in matmuls\n",
                      count("parameters"), count("parameters_without_embeddings"), count("matrix_parameters"));
  text += fmt::format("memory in f32\n  {:>15}  weights\n  {:>15}  gradients\n  {:>15}  AdamW moments\n",
                      size_text(memory["weights"]), size_text(memory["gradients"]), size_text(memory["optimizer"]));
  text += fmt::format("  {:>15}  KV cache of {} tokens\n", size_text(memory["kv_cache"]),
                      facts["config"]["ctx_len"].dump());
  text += fmt::format("FLOPs per token, context {}\n  {:>11.1f} MFLOP  forward\n  {:>11.1f} MFLOP  training\n",
                      facts["config"]["ctx_len"].dump(), facts["forward_flops_per_token"].get<double>() * 1e-6,
                      facts["training_flops_per_token"].get<double>() * 1e-6);
  return text;
}

Json model_facts(const std::string& path) {
  const qkv::ModelFacts model = qkv::inspect_model(path);
  Json all = {{"format", model.format}, {"notes", Json::array()}};
  for (const auto& [name, value] : model.notes) all["notes"].push_back({name, value});
  all.update(facts(model.config));
  all["tokenizer_size"] = model.tokenizer_size;
  all["end_token"] = model.end_tokens.empty() ? -1 : model.end_tokens[0];
  all["end_tokens"] = model.end_tokens;
  all["named_tokens"] = {
      {"begin", model.named.begin}, {"unknown", model.named.unknown}, {"padding", model.named.padding}};
  all["chat_template"] = nullptr;
  if (!model.chat_template.empty()) {
    const auto form = qkv::recognise_chat_form(model.chat_template);
    all["chat_template"] = form ? std::string(qkv::chat_form_name(*form)) : "unknown";
  }
  all["stored"] = Json::array();
  for (const auto& tensor : model.tensors)
    all["stored"].push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"bytes", tensor.bytes}});
  return all;
}

Json chosen_facts(const Options& options) {
  if (!options.path.empty()) return model_facts(options.path);
  if (!options.model.empty()) return model_facts(options.model);
  if (!options.config.empty()) return facts(qkv::load_config(options.config));
  if (options.preset.empty()) throw qkv::cli::UsageError("expected a path, --model, --preset or --config");
  return qkv::cli::asked([&] { return facts(qkv::preset(options.preset)); });
}

void run(const Options& options) {
  const Json all = chosen_facts(options);
  qkv::cli::print(options.json ? all.dump(2) + "\n" : text_of(all));
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Show a model's configuration, tensors and memory");
  const auto options = std::make_shared<Options>();
  CLI::Option* path = command->add_option("PATH", options->path, "Model: directory, GGUF file or ANDREA checkpoint");
  CLI::Option* model = command->add_option("-m,--model", options->model, "Same as PATH")->type_name("PATH");
  CLI::Option* named = command->add_option("--preset", options->preset, "Named configuration")->type_name("NAME");
  CLI::Option* config = command->add_option("--config", options->config, "Configuration file")->type_name("FILE");
  model->excludes(path);
  named->excludes(model)->excludes(path);
  config->excludes(model)->excludes(named)->excludes(path);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options] { run(*options); });
}

const qkv::cli::Subcommand kInfo(40, add);

}  // namespace
