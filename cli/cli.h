// SPDX-License-Identifier: Apache-2.0
// The frame of the command line: how a subcommand joins it.
//
// A subcommand is one file. It adds its options to the app and sets a callback that does the work:
//
//   namespace {
//   struct Options { std::string model; };
//   void run(const Options& options) { ... }
//   void add(CLI::App& app) {
//     CLI::App* command = app.add_subcommand("info", "What a model is made of");
//     auto options = std::make_shared<Options>();
//     command->add_option("-m,--model", options->model, "Model directory")->required();
//     command->callback([options] { run(*options); });
//   }
//   const qkv::cli::Subcommand kInfo(40, add);
//   }  // namespace
//
// The callback returns when the work is done (exit status 0), throws UsageError when options make no sense together
// (2), and lets anything else that the library throws pass (1). Option names are written with dashes; `-` and `_` are
// alike on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "output.h"

namespace qkv::cli {

// Adds itself to the list of subcommands; --help shows them by rising `order` (attend 10, train 20, generate 30,
// info 40, bench 50, ...).
class Subcommand {
 public:
  Subcommand(int order, void (*add)(CLI::App& app));
};

// -t, --threads N: 0 (the default) is one per core.
void add_threads_option(CLI::App& command);

}  // namespace qkv::cli
