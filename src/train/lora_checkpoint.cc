// SPDX-License-Identifier: Apache-2.0
// What a run that trains adapters keeps: DIR/base, the model they belong to, written once and held against its checksum
// by every checkpoint; and the adapters in the checkpoints.
#include <filesystem>

#include "formats/model_directory.h"
#include "formats/safetensors.h"
#include "os/atomic_directory.h"
#include "os/atomic_file.h"
#include "train/trainer_impl.h"

namespace qkv {

void Trainer::Impl::save_base(const std::string& directory) {
  std::vector<Tensor> parameters;
  for (std::size_t i = 0; i < model.infos().size(); ++i) parameters.push_back(lora->base(model, i));
  make_directories(directory);
  AtomicDirectory base(base_path(directory));
  save_model(base.path(), Model(model.config(), std::move(parameters)), tokenizer, facts);
  for (const char* name : kModelFiles) base_files[base_name(name)] = facts_of_file(base.path() + "/" + name);
  for (const std::string& name : text_fact_files(base.path()))
    base_files[base_name(name)] = facts_of_file(base.path() + "/" + name);
  base.commit();
}

std::map<std::string, FileFacts> Trainer::Impl::save_adapters(const std::string& directory,
                                                              const std::string& checkpoint) {
  std::error_code ignored;
  if (base_files.empty() || !std::filesystem::exists(base_path(directory), ignored)) save_base(directory);
  save_lora(checkpoint, model.config(), lora->adapters());
  std::map<std::string, FileFacts> files = base_files;
  for (const char* name : kAdapterFiles) files[name] = facts_of_file(checkpoint + "/" + name);
  return files;
}

}  // namespace qkv
