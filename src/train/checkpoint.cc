// SPDX-License-Identifier: Apache-2.0
// Saving and resuming a run. All that resuming needs is one file, run_state.safetensors, which is replaced in one step:
//   tensors   weights.NAME, adamw.m.NAME, adamw.v.NAME for each parameter
//   metadata  format "qkv-run-state", version "1", state (JSON), checksum (XXH3 of state and all elements, hex)
// config.json and tokenizer.json are written before it first appears and never change in a run.
#include <xxhash.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/parallel.h"
#include "formats/safetensors.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "train/run_state.h"
#include "train/trainer_impl.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

constexpr char kFormat[] = "qkv-run-state";

std::string state_path(const std::string& directory) { return directory + "/run_state.safetensors"; }

// The tensors of a run under their names in the file, in the order of the checksum.
struct Named {
  std::string name;
  Tensor* tensor;
};
std::vector<Named> named_tensors(Model& model, AdamW& optimizer) {
  std::vector<Named> all;
  const auto add = [&](const std::string& prefix, std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) all.push_back({prefix + model.infos()[i].name, &tensors[i]});
  };
  add("weights.", model.parameters());
  add("adamw.m.", optimizer.first_moments());
  add("adamw.v.", optimizer.second_moments());
  return all;
}

std::string checksum_of(const std::string& state, const std::vector<Named>& tensors) {
  std::vector<std::uint64_t> parts(tensors.size() + 1);
  parts[0] = XXH3_64bits(state.data(), state.size());
  parallel_for(static_cast<std::int64_t>(tensors.size()), [&](std::int64_t i) {
    const Tensor& tensor = *tensors[static_cast<std::size_t>(i)].tensor;
    parts[static_cast<std::size_t>(i) + 1] = XXH3_64bits(tensor.raw(), tensor.bytes());
  });
  const std::uint64_t all = XXH3_64bits(parts.data(), parts.size() * sizeof parts[0]);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 0; i < 16; ++i) text[static_cast<std::size_t>(i)] = kDigits[all >> (60 - 4 * i) & 15u];
  return text;
}

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

// What a start may leave behind that came to no first checkpoint. The tokens are written first: without them these are
// somebody's files.
bool left_by_a_start(const std::string& name, bool tokens_there) {
  const bool temporary = name.ends_with(".tmp");
  if (name == "tokens.bin" || (temporary && name.starts_with("tokens.bin."))) return true;
  return tokens_there && (temporary || name == "config.json" || name == "tokenizer.json");
}

SafetensorsFile open_state(const std::string& directory) {
  const std::string path = state_path(directory);
  if (!fs::exists(path)) {
    if (fs::exists(directory + "/model.safetensors")) {
      throw FileError(path,
                      "there is no such file: the directory holds a model but no training state, so there is "
                      "nothing to resume");
    }
    throw FileError(path, "there is no such file, so there is no run to resume");
  }
  SafetensorsFile file(path);
  const auto& metadata = file.metadata();
  const auto format = metadata.find("format");
  if (format == metadata.end() || format->second != kFormat) {
    throw FileError(path,
                    "expected a training state (weights, moments and where the run stands); found other tensors, "
                    "perhaps weights alone");
  }
  const auto version = metadata.find("version");
  if (version == metadata.end() || version->second != "1") {
    throw FileError(path, "expected version 1 of the training state; found " +
                              (version == metadata.end() ? "none" : "'" + version->second + "'"));
  }
  for (const char* key : {"state", "checksum"}) {
    if (!metadata.contains(key)) throw FileError(path, std::string("the training state has no entry '") + key + "'");
  }
  return file;
}

}  // namespace

void Trainer::save(const std::string& directory) {
  for (std::size_t i = 0; i < impl_->model.parameters().size(); ++i) {
    if (!all_finite(impl_->model.parameters()[i])) {
      throw std::runtime_error("[train] step " + std::to_string(impl_->state.step) + ": parameter " +
                               impl_->model.infos()[i].name + " holds NaN or an infinite number; not saved");
    }
  }
  save_model(directory, impl_->model, impl_->tokenizer);
  const std::string state = run_state_text(impl_->state, impl_->config);
  std::vector<NamedView> views;
  const auto tensors = named_tensors(impl_->model, impl_->optimizer);
  for (const Named& named : tensors) views.push_back({named.name, named.tensor->view()});
  write_safetensors(
      state_path(directory), std::move(views),
      {{"format", kFormat}, {"version", "1"}, {"state", state}, {"checksum", checksum_of(state, tensors)}});
}

Trainer Trainer::resume(const std::string& directory, TokenDataset data) {
  const SafetensorsFile file = open_state(directory);
  const std::string& state = file.metadata().at("state");
  const SavedRun saved = parse_run_state(file.path(), state);
  const ModelConfig config = load_config(directory + "/config.json");
  const bool wide = !file.tensors().empty() && file.tensors().front().dtype == "F64";
  Trainer trainer(Model(config, saved.config.seed, wide ? DType::f64 : DType::f32),
                  Tokenizer::load(directory + "/tokenizer.json"), std::move(data), saved.config);
  Impl& impl = *trainer.impl_;
  const auto tensors = named_tensors(impl.model, impl.optimizer);
  if (file.tensors().size() != tensors.size()) {
    throw FileError(file.path(), "expected " + std::to_string(tensors.size()) +
                                     " tensors, three a parameter of config.json; found " +
                                     std::to_string(file.tensors().size()));
  }
  for (const Named& named : tensors) file.read(named.name, named.tensor->view());
  if (checksum_of(state, tensors) != file.metadata().at("checksum")) {
    throw FileError(file.path(), "the contents do not have the checksum written there: the file is damaged");
  }
  impl.state = saved.state;
  return trainer;
}

TrainConfig load_train_config(const std::string& directory) {
  const SafetensorsFile file = open_state(directory);
  return parse_run_state(file.path(), file.metadata().at("state")).config;
}

RunDirectory inspect_run_directory(const std::string& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) return RunDirectory::absent;
  if (!fs::is_directory(status)) return RunDirectory::occupied;
  if (fs::exists(state_path(directory), error)) return RunDirectory::resumable;
  const bool tokens_there = fs::exists(directory + "/tokens.bin", error);
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (!left_by_a_start(entry->path().filename().string(), tokens_there)) return RunDirectory::occupied;
  }
  return error ? RunDirectory::occupied : RunDirectory::unfinished_start;
}

}  // namespace qkv
