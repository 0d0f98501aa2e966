// SPDX-License-Identifier: Apache-2.0
// The options of the command line that say how a text is written, the same for every command that writes one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "qkv/generate.h"

namespace qkv::cli {

struct WritingOptions {
  qkv::GenerateOptions generate;
  std::vector<std::string> stop;    // strings that end a text
  std::vector<std::string> biases;  // "ID+VALUE" or "ID-VALUE"
};

// Adds --temp, --top-k, --typical, --top-p, --min-p, the penalties, --logit-bias, --seed and --stop.
void add_sampler_options(CLI::App& command, WritingOptions& options);
// Adds --shift and --keep, whose default is described by `kept`.
void add_shift_options(CLI::App& command, WritingOptions& options, const std::string& kept);

// What was asked for, checked: throws UsageError.
qkv::GenerateOptions checked_options(const WritingOptions& options);
// Throws UsageError where a --logit-bias names a token that the model has not.
void require_known_tokens(const qkv::GenerateOptions& options, std::int64_t vocab_size);

}  // namespace qkv::cli
