// SPDX-License-Identifier: Apache-2.0
#include "train_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli.h"

namespace qkv::cli {
namespace {

// Sizes that follow from others by the usual rule, set back to "derive it", so that they follow a change.
ModelConfig with_derived_sizes_free(ModelConfig config) {
  if (config.v_head_dim == config.head_dim) config.v_head_dim = 0;
  if (config.head_dim * config.n_head == config.d_model) config.head_dim = 0;
  if (config.n_kv_head == config.n_head) config.n_kv_head = 0;
  if (config.d_ff == 4 * config.d_model) config.d_ff = 0;
  return config;
}

struct Size {
  const char* name;
  std::int64_t ModelConfig::*member;
};
constexpr Size kSizes[] = {{"n-layer", &ModelConfig::n_layer},   {"d-model", &ModelConfig::d_model},
                           {"n-head", &ModelConfig::n_head},     {"n-kv-head", &ModelConfig::n_kv_head},
                           {"head-dim", &ModelConfig::head_dim}, {"v-head-dim", &ModelConfig::v_head_dim},
                           {"d-ff", &ModelConfig::d_ff},         {"ctx-len", &ModelConfig::ctx_len}};

// "--d-model 64, where it has 96"; for what is no size the kind of option is enough.
std::string difference(const ModelConfig& asked, const ModelConfig& stored) {
  for (const auto& [name, member] : kSizes)
    if (asked.*member != stored.*member)
      return fmt::format("--{} {}, where it has {}{}", name, asked.*member, stored.*member,
                         std::string_view(name) == "ctx-len" ? " (--window trains on shorter sequences)" : "");
  if (asked.norm != stored.norm || asked.norm_gain != stored.norm_gain || asked.norm_bias != stored.norm_bias ||
      asked.norm_eps != stored.norm_eps || asked.embedding_norm != stored.embedding_norm ||
      asked.final_norm != stored.final_norm)
    return "norms that it does not have";
  if (asked.activation != stored.activation) return "another --activation";
  if (asked.positions != stored.positions || asked.rope_theta != stored.rope_theta) return "other --positions";
  if (asked.tied_head != stored.tied_head) return "another head";
  return "biases that it does not have, or none";
}

Model in_f32(Model model) {
  if (model.dtype() == DType::f32) return model;
  std::vector<Tensor> parameters;
  for (const Tensor& from : std::as_const(model).parameters()) {
    Tensor to(from.shape());  // as the parameter
    std::transform(from.data<double>(), from.data<double>() + from.size(), to.data<float>(),
                   [](double x) { return static_cast<float>(x); });
    parameters.push_back(std::move(to));
  }
  return Model(model.config(), std::move(parameters));
}

}  // namespace

ModelConfig asked_model(const TrainSettings& settings, ModelConfig base, std::int64_t vocab_size) {
  if (!settings.preset.empty()) base = preset(settings.preset);
  base = with_derived_sizes_free(base);
  settings.apply(base);
  base.vocab_size = vocab_size;
  return base.resolved();
}

void check_same_shape(const TrainSettings& settings, const ModelConfig& stored, const std::string& what) {
  ModelConfig asked = asked_model(settings, stored, stored.vocab_size);
  if (settings.preset.empty()) asked.rope_scaling = stored.rope_scaling;
  if (asked != stored.resolved()) throw UsageError(what + ": the options ask for " + difference(asked, stored));
}

std::optional<InitialModel> InitialModel::open(const TrainSettings& settings) {
  const std::string& path = settings.init;
  if (path.empty()) {
    if (settings.andrea.given()) throw UsageError(settings.andrea.names() + " are about a checkpoint (.bin) of --init");
    return std::nullopt;
  }
  if (!settings.tokenizer.empty()) throw UsageError("--init brings the model's own tokenizer; leave out --tokenizer");
  if (settings.andrea.given() && !is_andrea_checkpoint(path))
    throw UsageError(settings.andrea.names() + " are about checkpoints of ANDREA (.bin)");
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

Model InitialModel::take() {
  if (!model_) return in_f32(load_model(path_).model);
  return std::move(*model_);
}

}  // namespace qkv::cli
