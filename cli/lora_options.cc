// SPDX-License-Identifier: Apache-2.0
#include "lora_options.h"

#include <fmt/format.h>

#include <charconv>

#include "cli.h"

namespace qkv::cli {
namespace {

// `text` as a number above 0, or nothing if any of it is not part of one.
template <class T>
std::optional<T> number(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0)) return std::nullopt;
  return value;
}

}  // namespace

void add_lora_training_options(CLI::App& command, LoraSettings& settings, const std::string& group) {
  command
      .add_option("--lora", settings.shape, "Train LoRA adapters of this rank on the model of --init [ALPHA: 2 * RANK]")
      ->type_name("RANK[,ALPHA]")
      ->take_last()
      ->group(group);
  command
      .add_option("--lora-targets", settings.targets,
                  "Adapted matrices, of wq wk wv wo w_gate w_up w_down [wq,wk,wv,wo]")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(group);
}

std::optional<LoraOptions> lora_options(const LoraSettings& settings) {
  if (settings.shape.empty()) {
    if (!settings.targets.empty()) throw UsageError("--lora-targets needs --lora RANK");
    return std::nullopt;
  }
  const std::size_t comma = settings.shape.find(',');
  const auto rank = number<std::int64_t>(settings.shape.substr(0, comma));
  std::optional<double> alpha;
  if (rank)
    alpha =
        comma == std::string::npos ? 2 * static_cast<double>(*rank) : number<double>(settings.shape.substr(comma + 1));
  if (!rank || !alpha)
    throw UsageError(fmt::format("--lora expected RANK or RANK,ALPHA, numbers above 0; found '{}'", settings.shape));
  LoraOptions options;
  options.rank = *rank;
  options.alpha = *alpha;
  if (!settings.targets.empty()) options.targets = settings.targets;
  return options;
}

std::string describe_lora(const LoraAdapters& adapters) {
  std::int64_t count = 0;
  for (const Tensor& value : adapters.values) count += value.size();
  return fmt::format("rank {}, alpha {}, {} parameters in {} pairs of matrices", adapters.rank, adapters.alpha, count,
                     adapters.modules.size());
}

void add_lora_option(CLI::App& command, std::string& directory) {
  command.add_option("--lora", directory, "LoRA adapters: directory of PEFT or qkv train --lora")->type_name("DIR");
}

void add_adapters(Model& model, const std::string& directory) {
  if (!directory.empty()) add_lora(model, load_lora(directory, model.config()));
}

LoadedModel load_with_adapters(const std::string& path, const std::string& lora, const std::string& device) {
  if (lora.empty()) return load_model(path, device);
  LoadedModel loaded = load_model(path);
  add_adapters(loaded.model, lora);
  if (!device.empty() && device != loaded.model.device()) loaded.model = loaded.model.on_device(device);
  return loaded;
}

}  // namespace qkv::cli
