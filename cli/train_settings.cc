// SPDX-License-Identifier: Apache-2.0
#include "train_settings.h"

#include "arguments.h"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "cli.h"
#include "common_options.h"
#include "qkv/error.h"
#include "qkv/model_members.h"

namespace qkv::cli {
namespace {

// The defaults of a run.
template <class Config>
Config usual() {
  if constexpr (std::is_same_v<Config, ModelConfig>)
    return preset(kDefaultPreset);
  else
    return {};
}

// Adds an option for a member of a configuration.
template <class Config, class T, class Owner>
CLI::Option* add(CLI::App& command, std::vector<std::function<void(Config&)>>& values, const std::string& names,
                 T Owner::*member, const std::string& help) {
  auto value = std::make_shared<T>(usual<Config>().*member);
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<T, bool>) {
    option = command.add_flag(names, *value, help);
  } else {
    option = add_number(command, names, *value, help)->take_last();
  }
  values.push_back([value, option, member](Config& config) {
    if (option->count() > 0) config.*member = *value;
  });
  return option;
}

// An option whose value is one of several names; each name applies its own change to the configuration.
template <class Config>
using NamedChanges = std::vector<std::pair<std::string, std::function<void(Config&)>>>;
template <class Config>
void add_named(CLI::App& command, std::vector<std::function<void(Config&)>>& values, const std::string& option_name,
               const NamedChanges<Config>& changes, const std::string& help) {
  auto value = std::make_shared<std::string>();
  std::string listed;
  std::vector<std::string> names;
  for (const auto& change : changes) {
    listed += (listed.empty() ? "" : "|") + change.first;
    names.push_back(change.first);
  }
  const CLI::Option* option = command.add_option(option_name, *value, help)
                                  ->take_last()
                                  ->check(CLI::IsMember(names).description(""))
                                  ->type_name(listed);
  values.push_back([value, option, changes](Config& config) {
    if (option->count() == 0) return;
    for (const auto& change : changes) {
      if (change.first == *value) change.second(config);
    }
  });
}

template <class Config, class T, class Owner>
void add_choice(CLI::App& command, std::vector<std::function<void(Config&)>>& values, const std::string& name,
                T Owner::*member, const std::vector<std::pair<std::string, T>>& choices, const std::string& help) {
  NamedChanges<Config> changes;
  for (const auto& choice : choices)
    changes.emplace_back(choice.first, [member, to = choice.second](Config& config) { config.*member = to; });
  add_named(command, values, name, changes, help);
}

// The same for an enumeration (names from qkv/model_members.h).
template <class E>
void add_enum(CLI::App& command, std::vector<std::function<void(ModelConfig&)>>& values, const std::string& name,
              E LayerConfig::*member, const std::string& help) {
  std::vector<std::pair<std::string, E>> choices;
  for (const std::string_view text : kEnumNames<E>) choices.emplace_back(text, static_cast<E>(choices.size()));
  add_choice(command, values, name, member, choices, help);
}

NamedChanges<ModelConfig> activations() {
  NamedChanges<ModelConfig> changes;
  const auto both = [](Activation kind, bool gated) {
    return [=](ModelConfig& c) {
      c.activation = kind;
      c.gated = gated;
    };
  };
  for (const std::string_view name : kEnumNames<Activation>)
    changes.emplace_back(name, both(static_cast<Activation>(changes.size()), false));
  changes.emplace_back("swiglu", both(Activation::silu, true));
  changes.emplace_back("geglu", both(Activation::gelu, true));
  changes.emplace_back("reglu", both(Activation::relu, true));
  return changes;
}

// --attention-bias: --qkv-bias and --output-bias.
void add_both_biases(CLI::App& command, std::vector<std::function<void(ModelConfig&)>>& values) {
  auto value = std::make_shared<bool>(false);
  const CLI::Option* option =
      command.add_flag("--attention-bias,!--no-attention-bias", *value, "Biases of W_Q, W_K, W_V and W_O");
  values.push_back([value, option](ModelConfig& c) {
    if (option->count() > 0) c.qkv_bias = c.output_bias = *value;
  });
}

// Puts the options from index `first` on into a group; if one is given twice the last value counts, unless it is a
// list.
void group_options(CLI::App& command, std::size_t first, const char* group) {
  const auto options = command.get_options();
  for (std::size_t i = first; i < options.size(); ++i) {
    options[i]->group(group);
    if (options[i]->get_items_expected_max() == 1) options[i]->take_last();
  }
}

void add_data_options(CLI::App& command, TrainSettings& s) {
  const std::size_t first = command.get_options().size();
  command.add_option("--data", s.data, "Text files, .jsonl files, directories, - for standard input, or a token file")
      ->type_name("FILE|DIR...");
  command.add_option("--out,--out-dir", s.out, "Output directory: model, checkpoints, report")->type_name("DIR");
  command.add_flag("--resume", s.resume, "Resume the run in --out (bit-identical)");
  command
      .add_option("--config", s.config_file, "TOML or INI file with option names; the command line takes precedence")
      ->type_name("FILE");
  command.add_option("--tokenizer", s.tokenizer, "Tokenizer [bpe:4096; bytes for text below 256 KB]")
      ->type_name("bytes|bpe:SIZE|harris:SIZE|FILE|DIR");
  s.validation_fraction_option =
      add_number(command, "--val-fraction", s.validation_fraction, "Fraction of the text, at its end, for validation")
          ->check(below_one())
          ->capture_default_str();
  add_text_options(command, s.text, "Data and run");
  add_number(command, "--stop-after", s.stop_after, "Save and stop after this step; the schedule still spans --steps")
      ->check(at_least(1))
      ->type_name("STEP");
  command.add_flag("--memory-check,!--no-memory-check", s.memory_check,
                   "Refuse to start if a step would not fit in memory [yes]");
  add_count(command, "--save-patience", s.save_patience, 0, "How long to retry the last save on a full disk",
            "SECONDS");
  command.add_option("--sample-prompt", s.sample_prompt, "Prompt for samples")->type_name("TEXT");
  add_count(command, "--sample-tokens", s.sample_tokens, 1, "Tokens per sample");
  add_device_option(command, s.device);
  group_options(command, first, "Data and run");
  add_threads_option(command);
}

void add_model_options(CLI::App& command, TrainSettings& s) {
  using C = ModelConfig;
  auto& v = s.model_values;
  const std::size_t first = command.get_options().size();
  std::string presets;
  for (const std::string& name : preset_names()) presets += (presets.empty() ? "" : "|") + name;
  command
      .add_option("--preset", s.preset,
                  fmt::format("Named configuration; options below override it [{}]", kDefaultPreset))
      ->type_name(presets);
  command
      .add_option("--init", s.init,
                  "Start from this model and its tokenizer: directory, GGUF file or ANDREA checkpoint")
      ->type_name("MODEL");
  group_options(command, first, "Model");
  add_lora_training_options(command, s.lora, "Model");
  s.andrea.prefix = "init-";
  add_andrea_options(command, s.andrea, "ANDREA checkpoints: layout not stored in the file");
  const std::size_t members = command.get_options().size();
  add(command, v, "--n-layer", &C::n_layer, "Layers")->capture_default_str();
  add(command, v, "--n-head", &C::n_head, "Attention heads")->capture_default_str();
  add(command, v, "--n-kv-head", &C::n_kv_head, "Key/value heads [n_head]");
  add(command, v, "--d-model,--n-embd", &C::d_model, "Width of the residual stream")->capture_default_str();
  add(command, v, "--head-dim", &C::head_dim, "Query and key size per head [d_model / n_head]");
  add(command, v, "--v-head-dim", &C::v_head_dim, "Value size per head [head_dim]");
  add(command, v, "--d-ff", &C::d_ff, "Width of the MLP [8/3 d_model if gated, else 4 d_model]");
  add(command, v, "--ctx-len,--block-size", &C::ctx_len, "Context length in tokens")->capture_default_str();
  add_enum(command, v, "--norm", &C::norm, "Norm [rmsnorm]");
  add_named(command, v, "--activation", activations(), "MLP activation; swiglu, geglu, reglu: gated [swiglu]");
  add_enum(command, v, "--positions", &C::positions, "Position encoding [rotary]");
  add(command, v, "--norm-gain,!--no-norm-gain", &C::norm_gain, "Learnable gain in norms [yes]");
  add(command, v, "--norm-gain-offset,!--no-norm-gain-offset", &C::norm_gain_offset, "Gain is 1 + the parameter");
  add(command, v, "--norm-bias,!--no-norm-bias", &C::norm_bias, "Learnable bias in layer norms");
  add(command, v, "--norm-eps", &C::norm_eps, "Epsilon of norms")->capture_default_str();
  add_enum(command, v, "--norm-place", &C::norm_place, "Norm placement around attention and MLP [before]");
  add(command, v, "--embedding-norm,!--no-embedding-norm", &C::embedding_norm, "Norm after the embedding [no]");
  add(command, v, "--final-norm,!--no-final-norm", &C::final_norm, "Norm before the head [yes]");
  add(command, v, "--rope-theta", &C::rope_theta, "RoPE base")->capture_default_str();
  add(command, v, "--rope-share", &C::rope_share, "Fraction of each head that RoPE rotates")->capture_default_str();
  add(command, v, "--window-left", &C::window_left, "Attention window: earlier tokens attended to; -1 = all")
      ->capture_default_str();
  add(command, v, "--attention-scale", &C::attention_scale, "Scale of q . k [1 / sqrt(head_dim)]");
  add(command, v, "--softcap", &C::softcap, "Softcap of attention scores; 0 = off")->capture_default_str();
  add(command, v, "--alibi,!--no-alibi", &C::alibi, "ALiBi slope per head");
  add(command, v, "--sinks,!--no-sinks", &C::sinks, "Learned attention sink per head");
  add_enum(command, v, "--qk-norm", &C::qk_norm, "RMSNorm of queries and keys [none]");
  add_enum(command, v, "--residual", &C::residual, "Attention and MLP in sequence or in parallel [sequential]");
  add(command, v, "--residual-scale", &C::residual_scale, "Multiplier of attention and MLP outputs")
      ->capture_default_str();
  add(command, v, "--embedding-scale", &C::embedding_scale, "Multiplier of token embeddings")->capture_default_str();
  add(command, v, "--logit-scale", &C::logit_scale, "Multiplier of logits")->capture_default_str();
  add(command, v, "--logit-softcap", &C::logit_softcap, "Softcap of logits; 0 = off")->capture_default_str();
  add(command, v, "--qkv-bias,!--no-qkv-bias", &C::qkv_bias, "Biases of W_Q, W_K and W_V");
  add(command, v, "--output-bias,!--no-output-bias", &C::output_bias, "Bias of W_O");
  add_both_biases(command, v);
  add(command, v, "--mlp-bias,!--no-mlp-bias", &C::mlp_bias, "Biases of the MLP's matrices");
  add(command, v, "--tied-head,!--no-tied-head", &C::tied_head, "Tie output head to token embedding [yes]");
  group_options(command, members, "Model");
}

void add_optimiser_options(CLI::App& command, TrainSettings& s) {
  using C = TrainConfig;
  auto& v = s.train_values;
  const std::size_t first = command.get_options().size();
  add(command, v, "--steps,--max-iters", &C::steps, "Optimizer steps")->capture_default_str();
  add(command, v, "--batch-size", &C::batch_size, "Sequences per micro-batch")->capture_default_str();
  add(command, v, "--seq-len,--window", &C::window, "Training sequence length, if shorter than the context [ctx_len]");
  add(command, v, "--grad-accum,--gradient-accumulation-steps", &C::grad_accum,
      "Micro-batches per step (gradient accumulation)")
      ->capture_default_str();
  add(command, v, "--learning-rate", &C::learning_rate,
      "Peak learning rate [0.384 / d_model, at most 0.004; a fifth with --init; less in short runs without final "
      "norm]");
  add(command, v, "--min-lr", &C::min_lr, "Final learning rate [a tenth of the peak]");
  add(command, v, "--warmup-steps,--warmup-iters", &C::warmup_steps,
      "Warm-up steps [a twentieth of all, a third without final norm, at most 500]");
  add(command, v, "--decay-steps,--lr-decay-iters", &C::decay_steps, "Step at which the schedule ends [steps]");
  add_choice(command, v, "--schedule", &C::schedule,
             {{"cosine", Schedule::cosine},
              {"linear", Schedule::linear},
              {"wsd", Schedule::wsd},
              {"constant", Schedule::constant}},
             "Learning rate schedule after warm-up [cosine]");
  qkv::cli::add_choice(command, "--dtype", s.dtype, {"auto", "f32", "bf16"},
                       "Matmul precision; auto: bf16 if the CPU supports it");
  add(command, v, "--recompute,!--no-recompute", &C::recompute, "Activation checkpointing: recompute to save memory");
  add(command, v, "--dropout", &C::dropout, "Dropout rate (attention weights and residual branches)")
      ->capture_default_str();
  command.add_flag("--profile", s.profile, "Print a time breakdown by operation at the end");
  std::vector<std::pair<std::string, std::string>> optimizers;
  for (const std::string& name : optimizer_names()) optimizers.emplace_back(name, name);
  add_choice(command, v, "--optimizer", &C::optimizer, optimizers,
             "Optimizer; muon trains the layers' matrices, AdamW the rest [adamw]");
  add(command, v, "--muon-momentum", &C::muon_momentum, "Muon momentum")->capture_default_str();
  add(command, v, "--weight-decay", &C::weight_decay, "Weight decay (matrices only)")->capture_default_str();
  add(command, v, "--beta1", &C::beta1, "AdamW beta1")->capture_default_str();
  add(command, v, "--beta2", &C::beta2, "AdamW beta2")->capture_default_str();
  add(command, v, "--eps", &C::eps, "AdamW epsilon")->capture_default_str();
  add(command, v, "--grad-clip", &C::grad_clip, "Clip gradient norm to this; 0 = off")->capture_default_str();
  add(command, v, "--seed", &C::seed, "Random seed (weights, data order, samples)")->capture_default_str();
  add(command, v, "--max-bad-steps", &C::max_bad_steps, "Stop after this many non-finite steps in a row")
      ->capture_default_str();
  add(command, v, "--eval-interval", &C::eval_interval, "Steps between evaluations; 0 = none")->capture_default_str();
  add(command, v, "--eval-iters", &C::eval_iters, "Batches per evaluation; 0 = whole validation set")
      ->capture_default_str();
  add(command, v, "--sample-interval", &C::sample_interval, "Steps between samples; 0 = none")->capture_default_str();
  add(command, v, "--log-interval", &C::log_interval, "Log every N steps")->capture_default_str();
  add(command, v, "--checkpoint-interval", &C::checkpoint_interval, "Steps between checkpoints; 0 = only at the end")
      ->capture_default_str();
  add(command, v, "--keep-checkpoints,--keep", &C::keep_checkpoints, "Number of checkpoints to keep")
      ->capture_default_str();
  group_options(command, first, "Training");
}

}  // namespace

std::shared_ptr<TrainSettings> add_train_options(CLI::App& command) {
  auto settings = std::make_shared<TrainSettings>();
  add_data_options(command, *settings);
  add_model_options(command, *settings);
  add_optimiser_options(command, *settings);
  return settings;
}

void read_config_file(CLI::App& command, const TrainSettings& settings) {
  const std::string& path = settings.config_file;
  if (path.empty()) return;
  std::ifstream stream(path);
  if (!stream || stream.peek() == std::ifstream::traits_type::eof()) {
    throw FileError(path, stream ? "is empty" : "cannot be opened for reading");
  }
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error& error) {
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
  std::map<CLI::Option*, std::vector<std::string>> given;
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // start and end of a section
    const bool ours = item.parents.empty() || item.parents == std::vector<std::string>{"train"};
    CLI::Option* option = ours ? command.get_option_no_throw("--" + with_dashes(item.name)) : nullptr;
    if (!option || item.name == "config" || item.name == "help") {
      throw UsageError(fmt::format("{}: unknown option '{}'", path, item.fullname()));
    }
    if (option->count() > 0) continue;  // the command line has precedence
    given[option] = item.inputs;
  }
  for (const auto& [option, inputs] : given) {
    for (const std::string& input : inputs) option->add_result(input);
    try {
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw UsageError(fmt::format("{}: {}", path, error.what()));
    }
  }
}

}  // namespace qkv::cli
