// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint_writer.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "core/parallel.h"
#include "formats/model_directory.h"
#include "formats/safetensors.h"
#include "os/atomic_directory.h"
#include "os/atomic_file.h"
#include "train/checksum.h"

namespace qkv {
namespace {

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

void check_finite(const CheckpointContent& content) {
  const std::vector<Tensor>& trained = content.lora ? content.lora->adapters().values : content.model.parameters();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (all_finite(trained[i])) continue;
    const std::string name = content.lora ? content.lora->adapters().tensor_name(i) : content.model.infos()[i].name;
    throw std::runtime_error("[train] step " + std::to_string(content.state.step) + ": parameter " + name +
                             " contains NaN or infinity; not saved");
  }
}

// Computes size and checksum of a file while it is written.
class HashingWriter {
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

using Files = std::map<std::string, FileFacts>;

Files save_whole_model(const std::string& checkpoint, const CheckpointContent& content) {
  Files files;
  HashingWriter weights;
  save_model(checkpoint, content.model, content.tokenizer, content.facts, weights.watcher());
  for (const char* name : {"config.json", "tokenizer.json"}) files[name] = facts_of_file(checkpoint + "/" + name);
  for (const std::string& name : text_fact_files(checkpoint)) files[name] = facts_of_file(checkpoint + "/" + name);
  files["model.safetensors"] = weights.facts();
  return files;
}

Files save_base(const std::string& directory, const CheckpointContent& content) {
  Files files;
  std::vector<Tensor> parameters;
  for (std::size_t i = 0; i < content.model.infos().size(); ++i)
    parameters.push_back(content.lora->base(content.model, i));
  make_directories(directory);
  AtomicDirectory base(base_path(directory));
  save_model(base.path(), Model(content.model.config(), std::move(parameters)), content.tokenizer, content.facts);
  for (const char* name : kModelFiles) files[base_name(name)] = facts_of_file(base.path() + "/" + name);
  for (const std::string& name : text_fact_files(base.path()))
    files[base_name(name)] = facts_of_file(base.path() + "/" + name);
  base.commit();
  return files;
}

// Saves the adapters to the checkpoint, and their base model to the run's directory unless it is there.
Files save_adapters(const std::string& directory, const std::string& checkpoint, const CheckpointContent& content,
                    Files& base_files) {
  std::error_code ignored;
  if (base_files.empty() || !std::filesystem::exists(base_path(directory), ignored))
    base_files = save_base(directory, content);
  save_lora(checkpoint, content.model.config(), content.lora->adapters());
  Files files = base_files;
  for (const char* name : kAdapterFiles) files[name] = facts_of_file(checkpoint + "/" + name);
  return files;
}

FileFacts save_optimizer(const std::string& checkpoint, const CheckpointContent& content) {
  HashingWriter passing;
  std::vector<NamedView> views;
  for (const OptimizerTensor& own : content.optimizer) views.push_back({own.name, own.tensor.view()});
  write_safetensors(optimizer_path(checkpoint), std::move(views), {{"format", "qkv-optimizer"}, {"version", "1"}},
                    passing.watcher());
  return passing.facts();
}

// former: step of the checkpoint that the run resumed from or last wrote; -1: none
void write_checkpoint(const std::string& directory, const CheckpointContent& content, std::int64_t former,
                      Files& base_files) {
  check_finite(content);
  make_directories(directory + "/checkpoints");
  const std::string path = checkpoint_path(directory, content.state.step);
  AtomicDirectory checkpoint(path);
  CheckpointList list;
  list.files = content.lora ? save_adapters(directory, checkpoint.path(), content, base_files)
                            : save_whole_model(checkpoint.path(), content);
  list.files["optimizer.safetensors"] = save_optimizer(checkpoint.path(), content);
  list.state = run_state_text(content.state, content.config);
  write_checkpoint_list(checkpoint.path(), list);
  checkpoint.commit();
  publish_checkpoint(path, directory);
  remove_old_checkpoints(directory, former, content.state.step, content.config.keep_checkpoints);
}

// A copy of the content to save, so that training can continue.
struct ContentCopy {
  Model model;
  std::vector<OptimizerTensor> optimizer;
  Tokenizer tokenizer;
  TextFacts facts;
  TrainConfig config;
  RunState state;
};

// Copies in parallel, because the step waits for it.
ContentCopy copy_of(const CheckpointContent& content) {
  std::vector<Tensor> weights(content.model.parameters().size());
  std::vector<OptimizerTensor> own(content.optimizer.size());
  parallel_for(static_cast<std::int64_t>(weights.size() + own.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (at < weights.size())
      weights[at] = content.model.parameters()[at];
    else
      own[at - weights.size()] = content.optimizer[at - weights.size()];
  });
  return {Model(content.model.config(), std::move(weights)),
          std::move(own),
          content.tokenizer,
          content.facts,
          content.config,
          content.state};
}

}  // namespace

std::string optimizer_path(const std::string& checkpoint) { return checkpoint + "/optimizer.safetensors"; }

void CheckpointWriter::resumed(std::int64_t step, std::map<std::string, FileFacts> base_files) {
  saved_step_ = step;
  base_files_ = std::move(base_files);
}

void CheckpointWriter::save(const std::string& directory, const CheckpointContent& content) {
  finish(true);
  write_checkpoint(directory, content, saved_step_, base_files_);
  saved_step_ = content.state.step;
}

void CheckpointWriter::begin(const std::string& directory, const CheckpointContent& content) {
  finish(true);
  if (content.lora) {  // small enough to save synchronously
    std::promise<std::int64_t> done;
    try {
      save(directory, content);
      done.set_value(saved_step_);
    } catch (...) {
      done.set_exception(std::current_exception());
    }
    saving_ = done.get_future();
    return;
  }
  saving_ = std::async(std::launch::async, [copy = copy_of(content), directory, former = saved_step_] {
    Files none;
    write_checkpoint(directory,
                     {copy.model, nullptr, copy.optimizer, copy.tokenizer, copy.facts, copy.config, copy.state}, former,
                     none);
    return copy.state.step;
  });
}

std::optional<std::int64_t> CheckpointWriter::finish(bool wait) {
  if (!saving_.valid()) return {};
  if (!wait && saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  saved_step_ = saving_.get();
  return saved_step_;
}

}  // namespace qkv
