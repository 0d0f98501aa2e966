// SPDX-License-Identifier: Apache-2.0
// Resumes a run from its newest valid checkpoint (checkpoint_writer.h).
#include <filesystem>
#include <map>
#include <utility>

#include "formats/model_directory.h"
#include "formats/safetensors.h"
#include "os/atomic_directory.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "qkv/train_run.h"
#include "train/trainer_impl.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

// A checkpoint whose files have all been verified.
struct SoundCheckpoint {
  SavedRun run;
  std::map<std::string, FileFacts> files;
  LoadedModel model;  // with adapters: their base model
  std::optional<LoraAdapters> adapters;
  SafetensorsFile optimizer;
};

SoundCheckpoint open_checkpoint(const std::string& directory, std::int64_t step) {
  const std::string path = checkpoint_path(directory, step);
  const CheckpointList list = read_checkpoint_list(path);
  const bool with_adapters = list.files.contains(kAdapterFiles[0]);
  std::vector<std::string> needed{"optimizer.safetensors"};
  for (const char* name : kModelFiles) needed.push_back(with_adapters ? base_name(name) : name);
  if (with_adapters) needed.insert(needed.end(), std::begin(kAdapterFiles), std::end(kAdapterFiles));
  for (const std::string& name : needed)
    if (!list.files.contains(name)) throw FileError(path + "/checkpoint.json", "does not list " + name);
  verify_checkpoint_files(path, list);
  SavedRun run = parse_run_state(path + "/checkpoint.json", list.state);
  LoadedModel model = load_model(with_adapters ? base_path(directory) : path);
  std::optional<LoraAdapters> adapters;
  if (with_adapters) adapters = load_lora(path, model.model.config());
  SafetensorsFile optimizer(optimizer_path(path));
  return {std::move(run), list.files, std::move(model), std::move(adapters), std::move(optimizer)};
}

// Publishes the model if a crash prevented it after the checkpoint was written. Ignores errors, so that a run in a
// read-only directory can still be resumed.
void publish_if_possible(const std::string& checkpoint, const std::string& directory) {
  try {
    publish_checkpoint(checkpoint, directory);
  } catch (const FileError&) {
  }
}

[[noreturn]] void nothing_to_resume(const std::string& directory) {
  const std::string path = directory + "/checkpoints";
  if (fs::exists(directory + "/run_state.safetensors"))
    throw FileError(path,
                    "there is no checkpoint: the run was saved by an earlier version (run_state.safetensors), "
                    "which this version cannot resume");
  if (fs::exists(directory + "/model.safetensors"))
    throw FileError(path,
                    "there is no checkpoint: the directory has a model but no training state, so there is "
                    "nothing to resume");
  throw FileError(path, "contains no checkpoint to resume from");
}

Trainer begun(LoadedModel model, std::optional<LoraAdapters> adapters, const TokenDataset& data,
              const TrainConfig& config) {
  TextFacts facts = model.text_facts();
  Trainer trainer =
      adapters ? Trainer(std::move(model.model), std::move(model.tokenizer), data, config, std::move(*adapters))
               : Trainer(std::move(model.model), std::move(model.tokenizer), data, config);
  trainer.set_text_facts(std::move(facts));
  return trainer;
}

// Files left by a start that did not reach its first checkpoint.
bool is_startup_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const std::string kept : {"tokens.bin", "base"})
    if (name == kept || (is_temporary_name(name) && name.starts_with(kept + "."))) return true;
  if (name != "checkpoints") return false;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (!is_temporary_name(entry->path().filename().string())) return false;
  return !error;
}

}  // namespace

Trainer Trainer::resume(const std::string& directory, TokenDataset data, std::vector<std::string>* refused) {
  const std::vector<std::int64_t> steps = checkpoint_steps(directory);
  if (steps.empty()) nothing_to_resume(directory);
  std::string reasons;
  for (const std::int64_t step : steps) {
    try {
      SoundCheckpoint found = open_checkpoint(directory, step);
      const std::uint64_t wanted = found.run.state.data_checksum;
      if (wanted != 0 && wanted != data.checksum())
        throw std::invalid_argument("[train] expected the tokens that the run in " + directory +
                                    " began with; found different ones (checksum mismatch)");
      Trainer trainer = begun(std::move(found.model), std::move(found.adapters), data, found.run.config);
      std::vector<OptimizerTensor>& state = trainer.impl_->training.optimizer().state();
      if (found.optimizer.tensors().size() != state.size())
        throw FileError(found.optimizer.path(), "expected the " + std::to_string(state.size()) + " tensors of " +
                                                    trainer.config().optimizer + "; found " +
                                                    std::to_string(found.optimizer.tensors().size()));
      for (OptimizerTensor& own : state) found.optimizer.read(own.name, own.tensor.view());
      std::map<std::string, FileFacts> base_files;
      for (const auto& [name, facts] : found.files)
        if (name.starts_with(base_name(""))) base_files[name] = facts;
      trainer.impl_->checkpoints.resumed(step, std::move(base_files));
      trainer.impl_->state = std::move(found.run.state);
      trainer.impl_->state.data_checksum = data.checksum();
      publish_if_possible(checkpoint_path(directory, step), directory);
      return trainer;
    } catch (const FileError& error) {
      if (refused) refused->push_back(error.what());
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw FileError(directory + "/checkpoints", "no usable checkpoint: " + reasons);
}

TrainConfig load_train_config(const std::string& directory) {
  const std::vector<std::int64_t> steps = checkpoint_steps(directory);
  if (steps.empty()) nothing_to_resume(directory);
  for (std::size_t i = 0;; ++i) {
    const std::string path = checkpoint_path(directory, steps[i]);
    try {
      return parse_run_state(path + "/checkpoint.json", read_checkpoint_list(path).state).config;
    } catch (const FileError&) {
      if (i + 1 == steps.size()) throw;
    }
  }
}

RunDirectory inspect_run_directory(const std::string& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) return RunDirectory::absent;
  if (!fs::is_directory(status)) return RunDirectory::occupied;
  if (!checkpoint_steps(directory).empty()) return RunDirectory::resumable;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (!is_startup_leftover(entry->path())) return RunDirectory::occupied;
  return error ? RunDirectory::occupied : RunDirectory::unfinished_start;
}

}  // namespace qkv
