// SPDX-License-Identifier: Apache-2.0
// Saving and resuming a run. A checkpoint is a directory of its own, made in one step and never changed:
//   config.json model.safetensors tokenizer.json   a model directory
//   optimizer.safetensors                           the optimizer's own tensors by the names that it gives them
//   checkpoint.json                                 where the run stands; sizes and checksums of the other files
// A run of adapters keeps them in the place of the model's files (lora_checkpoint.cc).
// The model files of the run's directory are second names of the newest checkpoint's.
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>

#include "core/parallel.h"
#include "formats/model_directory.h"
#include "formats/safetensors.h"
#include "os/atomic_directory.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "train/checkpoint_directory.h"
#include "train/checksum.h"
#include "train/run_state.h"
#include "train/trainer_impl.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

std::string optimizer_path(const std::string& checkpoint) { return checkpoint + "/optimizer.safetensors"; }

bool all_finite(const Tensor& tensor) {
  std::atomic<bool> finite = true;
  parallel_ranges(tensor.size(), 1 << 18, [&](std::int64_t begin, std::int64_t end) {
    bool good = true;
    for (std::int64_t i = begin; i < end; ++i) {
      good = good & (tensor.dtype() == DType::f64 ? std::isfinite(tensor.data<double>()[i])
                                                  : std::isfinite(tensor.data<float>()[i]));
    }
    if (!good) finite = false;
  });
  return finite;
}

// Facts of a file as its bytes pass on their way to the disk.
class Passing {
 public:
  std::function<void(const void*, std::size_t)> watcher() {
    return [this](const void* data, std::size_t size) {
      checksum_.add(data, size);
      bytes_ += static_cast<std::int64_t>(size);
    };
  }
  FileFacts facts() const { return {bytes_, checksum_.value()}; }

 private:
  Checksum checksum_;
  std::int64_t bytes_ = 0;
};

// A checkpoint all of whose files have been checked.
struct SoundCheckpoint {
  SavedRun run;
  std::map<std::string, FileFacts> files;
  LoadedModel model;  // with adapters: the one they belong to
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

// A crash may have come between a checkpoint and the names of its model. Who may read but not write can still resume.
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
                    "which this one cannot go on with");
  if (fs::exists(directory + "/model.safetensors"))
    throw FileError(path,
                    "there is no checkpoint: the directory holds a model but no training state, so there is "
                    "nothing to resume");
  throw FileError(path, "there is no checkpoint, so there is no run to resume");
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

// What a start may leave behind that came to no first checkpoint.
bool left_by_a_start(const fs::path& path) {
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

void Trainer::Impl::check_finite() const {
  const std::vector<Tensor>& trained = lora ? lora->adapters().values : model.parameters();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (all_finite(trained[i])) continue;
    const std::string name = lora ? lora->adapters().tensor_name(i) : model.infos()[i].name;
    throw std::runtime_error("[train] step " + std::to_string(state.step) + ": parameter " + name +
                             " holds NaN or an infinite number; not saved");
  }
}

FileFacts Trainer::Impl::save_optimizer(const std::string& checkpoint) const {
  Passing passing;
  std::vector<NamedView> views;
  for (const OptimizerTensor& own : optimizer->state()) views.push_back({own.name, own.tensor.view()});
  write_safetensors(optimizer_path(checkpoint), std::move(views), {{"format", "qkv-optimizer"}, {"version", "1"}},
                    passing.watcher());
  return passing.facts();
}

void Trainer::save(const std::string& directory) {
  finish_saving(true);
  impl_->check_finite();
  make_directories(directory + "/checkpoints");
  const std::string path = checkpoint_path(directory, impl_->state.step);
  AtomicDirectory checkpoint(path);
  impl_->state.data_checksum = impl_->data.checksum();
  CheckpointList list;
  if (impl_->lora) {
    list.files = impl_->save_adapters(directory, checkpoint.path());
  } else {
    Passing weights;
    save_model(checkpoint.path(), impl_->model, impl_->tokenizer, impl_->facts, weights.watcher());
    for (const char* name : {"config.json", "tokenizer.json"})
      list.files[name] = facts_of_file(checkpoint.path() + "/" + name);
    for (const std::string& name : text_fact_files(checkpoint.path()))
      list.files[name] = facts_of_file(checkpoint.path() + "/" + name);
    list.files["model.safetensors"] = weights.facts();
  }
  list.files["optimizer.safetensors"] = impl_->save_optimizer(checkpoint.path());
  list.state = run_state_text(impl_->state, impl_->config);
  write_checkpoint_list(checkpoint.path(), list);
  checkpoint.commit();
  publish_checkpoint(path, directory);
  const std::int64_t former = std::exchange(impl_->saved_step, impl_->state.step);
  remove_old_checkpoints(directory, former, impl_->state.step, impl_->config.keep_checkpoints);
}

// Copies in parallel: the step waits for it.
Trainer Trainer::Impl::snapshot() const {
  std::vector<Tensor> weights(model.parameters().size());
  std::vector<OptimizerTensor> own(optimizer->state().size());
  parallel_for(static_cast<std::int64_t>(weights.size() + own.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (at < weights.size())
      weights[at] = model.parameters()[at];
    else
      own[at - weights.size()] = optimizer->state()[at - weights.size()];
  });
  auto impl = std::make_unique<Impl>(Model(model.config(), std::move(weights)), tokenizer, data, config);
  impl->facts = facts;
  impl->optimizer->state() = std::move(own);
  impl->state = state;
  impl->saved_step = saved_step;
  return Trainer(std::move(impl));
}

void Trainer::begin_saving(const std::string& directory) {
  finish_saving(true);
  if (impl_->lora) {  // so small that the step can wait for it
    std::promise<std::int64_t> done;
    try {
      save(directory);
      done.set_value(impl_->saved_step);
    } catch (...) {
      done.set_exception(std::current_exception());
    }
    impl_->saving = done.get_future();
    return;
  }
  impl_->saving = std::async(std::launch::async, [copy = impl_->snapshot(), directory]() mutable {
    copy.save(directory);
    return copy.steps_done();
  });
}

std::optional<std::int64_t> Trainer::finish_saving(bool wait) {
  std::future<std::int64_t>& saving = impl_->saving;
  if (!saving.valid()) return {};
  if (!wait && saving.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  impl_->saved_step = saving.get();
  return impl_->saved_step;
}

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
                                    " began with; found others (their checksums differ)");
      Trainer trainer = begun(std::move(found.model), std::move(found.adapters), data, found.run.config);
      std::vector<OptimizerTensor>& state = trainer.impl_->optimizer->state();
      if (found.optimizer.tensors().size() != state.size())
        throw FileError(found.optimizer.path(), "expected the " + std::to_string(state.size()) + " tensors of " +
                                                    trainer.config().optimizer + "; found " +
                                                    std::to_string(found.optimizer.tensors().size()));
      for (OptimizerTensor& own : state) found.optimizer.read(own.name, own.tensor.view());
      for (const auto& [name, facts] : found.files)
        if (trainer.impl_->lora && name.starts_with(base_name(""))) trainer.impl_->base_files[name] = facts;
      trainer.impl_->state = std::move(found.run.state);
      trainer.impl_->saved_step = step;
      publish_if_possible(checkpoint_path(directory, step), directory);
      return trainer;
    } catch (const FileError& error) {
      if (refused) refused->push_back(error.what());
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw FileError(directory + "/checkpoints", "no checkpoint there can be used: " + reasons);
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
    if (!left_by_a_start(entry->path())) return RunDirectory::occupied;
  return error ? RunDirectory::occupied : RunDirectory::unfinished_start;
}

}  // namespace qkv
