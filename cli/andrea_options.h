// SPDX-License-Identifier: Apache-2.0
// Options that describe an ANDREA checkpoint: what its file does not store.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "qkv/andrea.h"

namespace qkv::cli {

struct AndreaOptions {
  std::string order, matrices, ids, preset, config;
  std::string prefix;  // of the option names: "" or "init-"

  bool given() const {
    return !order.empty() || !matrices.empty() || !ids.empty() || !preset.empty() || !config.empty();
  }
  std::string names() const;  // "--order, --matrices, --ids, --preset and --config"
};

bool is_andrea_checkpoint(const std::string& path);

// --preset, --config, --order, --matrices and --ids, with options.prefix before each name.
void add_andrea_options(CLI::App& command, AndreaOptions& options, const std::string& group);

// The parameter layout of the checkpoint: the given options applied to `base`.
AndreaLayout layout_of(const AndreaOptions& options, AndreaLayout base);

// Throws UsageError if the layout is given without the shape, and whatever load_andrea throws.
AndreaCheckpoint load_andrea_checkpoint(const std::string& path, const AndreaOptions& options, bool with_moments);

}  // namespace qkv::cli
