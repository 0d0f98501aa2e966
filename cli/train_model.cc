// SPDX-License-Identifier: Apache-2.0
#include "train_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.h"
#include "cli.h"
#include "qkv/model_members.h"

namespace qkv::cli {
namespace {

bool has_usual_gated_mlp(const ModelConfig& config) {
  return config.gated && config.d_ff == gated_d_ff(config.d_model);
}

// Resets sizes that follow from others by the default rule to 0 (derive), so that they follow a change.
ModelConfig with_derived_sizes_free(ModelConfig config) {
  if (config.v_head_dim == config.head_dim) config.v_head_dim = 0;
  if (config.head_dim * config.n_head == config.d_model) config.head_dim = 0;
  if (config.n_kv_head == config.n_head) config.n_kv_head = 0;
  if (config.d_ff == 4 * config.d_model || has_usual_gated_mlp(config)) config.d_ff = 0;
  return config;
}

// "--d-model 64, but the model has 96"
std::string difference(const ModelConfig& asked, const ModelConfig& stored) {
  const auto members = [](const ModelConfig& c) {
    std::vector<std::pair<std::string, std::string>> all;
    for_each_member(c, [&](const char* name, const auto& value) {
      if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>)
        all.emplace_back(name, enum_name(value));
      else
        all.emplace_back(name, fmt::format("{}", value));
    });
    return all;
  };
  const auto wanted = members(asked), found = members(stored);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != found[i])
      return fmt::format("--{} {}, but the model has {}{}", with_dashes(wanted[i].first), wanted[i].second,
                         found[i].second,
                         wanted[i].first == "ctx_len" ? " (--seq-len trains on shorter sequences)" : "");
  return "different layers";
}

}  // namespace

std::string exports_text(const ModelConfig& config, const Tokenizer& tokenizer) {
  std::vector<std::string> can;
  std::vector<std::pair<std::string, std::string>> why_not;  // each obstacle and the formats it affects
  for (const ExportFacts& facts : export_facts(config, tokenizer)) {
    if (facts.obstacles.empty()) can.push_back(fmt::format("{} ({})", facts.format, facts.family));
    for (const std::string& obstacle : facts.obstacles) {
      const auto known = std::find_if(why_not.begin(), why_not.end(), [&](auto& one) { return one.first == obstacle; });
      if (known == why_not.end())
        why_not.emplace_back(obstacle, facts.format);
      else
        known->second += " and " + facts.format;
    }
  }
  std::string text = "exports to: " + (can.empty() ? "no other format" : fmt::format("{}", fmt::join(can, ", ")));
  for (const auto& [obstacle, formats] : why_not) text += fmt::format("\n  not to {}: {}", formats, obstacle);
  return text;
}

ModelConfig asked_model(const TrainSettings& settings, ModelConfig base, std::int64_t vocab_size) {
  if (!settings.preset.empty()) base = preset(settings.preset);
  const bool usual_gated_mlp = has_usual_gated_mlp(base);
  base = with_derived_sizes_free(base);
  settings.apply(base);
  if (base.d_ff == 0 && base.gated && usual_gated_mlp) base.d_ff = gated_d_ff(base.d_model);
  base.vocab_size = vocab_size;
  return base.resolved();
}

void check_same_shape(const TrainSettings& settings, const ModelConfig& stored, const std::string& what) {
  ModelConfig asked = asked_model(settings, stored, stored.vocab_size);
  if (settings.preset.empty()) asked.rope_scaling = stored.rope_scaling;
  ModelConfig given;
  given.d_ff = -1;
  settings.apply(given);
  if (given.d_ff < 0) asked.d_ff = stored.resolved().d_ff;  // derived sizes may have changed since
  if (asked != stored.resolved()) throw UsageError(what + ": the options ask for " + difference(asked, stored));
}

std::optional<InitialModel> InitialModel::open(const TrainSettings& settings) {
  const std::string& path = settings.init;
  if (path.empty()) {
    if (settings.andrea.given())
      throw UsageError(settings.andrea.names() + " apply only to an ANDREA checkpoint (.bin) given with --init");
    return std::nullopt;
  }
  if (!settings.tokenizer.empty()) throw UsageError("--init uses the model's own tokenizer; leave out --tokenizer");
  if (settings.andrea.given() && !is_andrea_checkpoint(path))
    throw UsageError(settings.andrea.names() + " apply only to ANDREA checkpoints (.bin)");
  const auto opened = [&] {
    if (!settings.andrea.given()) {
      const ModelFacts facts = inspect_model(path);
      return InitialModel(path, facts.config, load_model_tokenizer(path), facts.text_facts());
    }
    AndreaCheckpoint checkpoint = load_andrea_checkpoint(path, settings.andrea, false);
    InitialModel initial(path, checkpoint.model.config(), std::move(checkpoint.tokenizer), {});
    initial.model_ = std::move(checkpoint.model);
    return initial;
  };
  InitialModel initial = opened();
  check_same_shape(settings, initial.config_, fmt::format("the model of {} cannot change", path));
  return initial;
}

Model InitialModel::take(const std::string& device) {
  if (!model_) return load_model(path_, device).model;
  return model_->device() == device ? std::move(*model_) : model_->on_device(device);
}

}  // namespace qkv::cli
