// SPDX-License-Identifier: Apache-2.0
// The options of the command line that say how a text is written, the same for every command that writes one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli.h"
#include "qkv/engine.h"
#include "qkv/model_file.h"

namespace qkv::cli {

struct WritingOptions {
  qkv::GenerateOptions generate;
  std::vector<std::string> biases;  // "ID+VALUE" or "ID-VALUE"
  std::string dtype = "auto";       // of weights
  std::string device;
};

void add_model_option(CLI::App& command, std::string& path);        // -m
void add_dtype_option(CLI::App& command, WritingOptions& options);  // --dtype and --device
// The model at a path as these two ask. Throws UsageError.
qkv::LoadedModel load_for_generation(const std::string& path, const WritingOptions& options);
void add_max_tokens_option(CLI::App& command, WritingOptions& options, const std::string& help);  // -n

// Adds --temp, --top-k, --typical, --top-p, --min-p, the penalties, --logit-bias, --seed and --stop.
void add_sampler_options(CLI::App& command, WritingOptions& options);
// Adds --shift and --keep, whose default is described by `kept`.
void add_shift_options(CLI::App& command, WritingOptions& options, const std::string& kept);

// What was asked for, checked: throws UsageError.
qkv::GenerateOptions checked_options(const WritingOptions& options);
// Throws UsageError where a --logit-bias names a token the model does not have.
void require_known_tokens(const qkv::GenerateOptions& options, const qkv::LoadedModel& loaded);
// Steps until no request is left; Ctrl-C cancels those that are.
void run_engine(qkv::Engine& engine, const std::function<bool()>& submit_more = {});

}  // namespace qkv::cli
