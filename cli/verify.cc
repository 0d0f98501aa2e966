// SPDX-License-Identifier: Apache-2.0
// qkv verify: checks a model, or one of its files, for corruption.
#include <memory>

#include "cli.h"
#include "qkv/model_file.h"

namespace {

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify", "Check a model or file for corruption");
  const auto path = std::make_shared<std::string>();
  command
      ->add_option("PATH", *path, "Model, .safetensors, .safetensors.index.json, .npy, config.json or tokenizer.json")
      ->required();
  command->callback([path] { qkv::cli::print(*path + ": OK; " + qkv::verify_path(*path) + "\n"); });
}

const qkv::cli::Subcommand kVerify(44, add);

}  // namespace
