// SPDX-License-Identifier: Apache-2.0
// qkv verify: whether a model or a file of one is whole.
#include <memory>

#include "cli.h"
#include "qkv/model_file.h"

namespace {

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "verify", "Read all of a model or a file and say whether it is whole: exit status 0, or 1 and the reason");
  const auto path = std::make_shared<std::string>();
  command
      ->add_option(
          "PATH", *path,
          "A model (directory or file), or a single .safetensors, .safetensors.index.json, .npy, config.json or "
          "tokenizer.json")
      ->required();
  command->callback([path] { qkv::cli::print(*path + ": good; " + qkv::verify_path(*path) + "\n"); });
}

const qkv::cli::Subcommand kVerify(44, add);

}  // namespace
