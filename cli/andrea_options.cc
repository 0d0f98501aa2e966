// SPDX-License-Identifier: Apache-2.0
#include "andrea_options.h"

#include <fmt/format.h>

#include "cli.h"
#include "common_options.h"
#include "qkv/model_file.h"

namespace qkv::cli {

std::string AndreaOptions::names() const {
  return fmt::format("--{0}order, --{0}matrices, --{0}ids, --{0}preset and --{0}config", prefix);
}

bool is_andrea_checkpoint(const std::string& path) { return path.ends_with(".bin"); }

void add_andrea_options(CLI::App& command, AndreaOptions& options, const std::string& group) {
  const auto name = [&](const char* rest) { return "--" + options.prefix + rest; };
  command.add_option(name("preset"), options.preset, "Configuration [the matching ANDREA preset, or andrea.json]")
      ->type_name("NAME")
      ->group(group);
  command.add_option(name("config"), options.config, "Configuration as config.json; vocab_size is segments + 257")
      ->type_name("FILE")
      ->group(group);
  command.add_option(name("order"), options.order, fmt::format("Order of parameters [{}]", AndreaLayout{}.order))
      ->type_name("NAME,...")
      ->group(group);
  add_choice(command, name("matrices"), options.matrices, {"out-in", "in-out"}, "Matrix layout [out-in]")->group(group);
  add_choice(command, name("ids"), options.ids, {"segments-first", "bytes-first"},
             "Order of token ids [segments-first]")
      ->group(group);
}

AndreaLayout layout_of(const AndreaOptions& options, AndreaLayout base) {
  if (!options.order.empty()) base.order = options.order;
  if (!options.matrices.empty()) base.out_in = options.matrices == "out-in";
  if (!options.ids.empty()) base.bytes_first = options.ids == "bytes-first";
  if (!options.preset.empty()) {
    base.config = preset(options.preset);
    base.config.vocab_size = 0;  // derived from harris_segments.json
  }
  if (!options.config.empty()) base.config = load_config(options.config);
  return base;
}

AndreaCheckpoint load_andrea_checkpoint(const std::string& path, const AndreaOptions& options, bool with_moments) {
  if (!options.given()) return load_andrea(path, {}, with_moments);
  if (options.preset.empty() && options.config.empty())
    throw UsageError(
        fmt::format("--{0}order, --{0}matrices and --{0}ids also need --{0}preset or --{0}config: the model's "
                    "shape",
                    options.prefix));
  return load_andrea(path, layout_of(options, {}), with_moments);
}

}  // namespace qkv::cli
