// SPDX-License-Identifier: Apache-2.0
// Sampling and generation options, shared by all commands that generate text.
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
  std::string dtype = "auto";       // of the weights
  std::string device;
};

void add_model_option(CLI::App& command, std::string& path);        // -m
void add_dtype_option(CLI::App& command, WritingOptions& options);  // --dtype and --device
// Loads a model with the given --dtype and --device. Throws UsageError.
qkv::LoadedModel load_for_generation(const std::string& path, const WritingOptions& options);
void add_max_tokens_option(CLI::App& command, WritingOptions& options, const std::string& help);  // -n

// Adds --temp, --top-k, --typical, --top-p, --min-p, the penalties, --logit-bias, --seed and --stop.
void add_sampler_options(CLI::App& command, WritingOptions& options);
// Adds --shift and --keep; `kept` describes the default of --keep.
void add_shift_options(CLI::App& command, WritingOptions& options, const std::string& kept);

// The requested options, validated. Throws UsageError.
qkv::GenerateOptions checked_options(const WritingOptions& options);
// Throws UsageError if a --logit-bias names a token that the model does not have.
void require_known_tokens(const qkv::GenerateOptions& options, const qkv::LoadedModel& loaded);
// Runs engine steps until all requests are done; Ctrl-C cancels the remaining ones.
void run_engine(qkv::Engine& engine, const std::function<bool()>& submit_more = {});

}  // namespace qkv::cli
