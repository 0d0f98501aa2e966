// SPDX-License-Identifier: Apache-2.0
// Command-line framework: how to add a subcommand.
//
// A subcommand is one file. It adds its options to the app and sets a callback that does the work:
//
//   namespace {
//   struct Options { std::string model; };
//   void run(const Options& options) { ... }
//   void add(CLI::App& app) {
//     CLI::App* command = app.add_subcommand("info", "Show a model's configuration");
//     auto options = std::make_shared<Options>();
//     command->add_option("-m,--model", options->model, "Model directory")->required();
//     command->callback([options] { run(*options); });
//   }
//   const qkv::cli::Subcommand kInfo(40, add);
//   }  // namespace
//
// The callback returns when the work is done (exit status 0), throws UsageError for options that contradict each other
// (2), and lets other exceptions from the library propagate (1). Option names are written with dashes; `-` and `_` are
// equivalent on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "output.h"

namespace qkv::cli {

// Registers a subcommand; --help lists them by ascending `order` (attend 10, train 20, generate 30,
// info 40, bench 50, ...).
class Subcommand {
 public:
  Subcommand(int order, void (*add)(CLI::App& app));
};

// -t, --threads N: 0 (the default) means one per core.
void add_threads_option(CLI::App& command);

}  // namespace qkv::cli
