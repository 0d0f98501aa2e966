// SPDX-License-Identifier: Apache-2.0
// qkv report: regenerates the HTML report of a training run.
#include "qkv/report.h"

#include <fmt/format.h>

#include <memory>

#include "cli.h"

namespace {

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Regenerate a run's HTML report");
  const auto directory = std::make_shared<std::string>();
  command->add_option("directory", *directory, "Directory of the run (--out of qkv train)")
      ->type_name("DIR")
      ->required();
  command->callback([directory] {
    qkv::write_report(*directory);
    qkv::cli::print(fmt::format("{}/report.html\n", *directory));
  });
}

const qkv::cli::Subcommand kReport(25, add);

}  // namespace
