// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints, at once or on a thread of its own while training goes on. A checkpoint is a directory of its own,
// made in one step and never changed:
//   config.json model.safetensors tokenizer.json   a model directory
//   optimizer.safetensors                           the optimizer's own tensors by the names that it gives them
//   checkpoint.json                                 where the run is; sizes and checksums of the other files
// A run of adapters has them in the place of the model's files, and DIR/base, the model they belong to, written once
// and checked against its checksum by every checkpoint. The model files of the run's directory are second names of the
// newest checkpoint's.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qkv/model_file.h"
#include "qkv/optimizer.h"
#include "train/checkpoint_directory.h"
#include "train/lora_training.h"
#include "train/run_state.h"

namespace qkv {

std::string optimizer_path(const std::string& checkpoint);

// What a checkpoint is written from.
struct CheckpointContent {
  const Model& model;
  const LoraTraining* lora;  // null: all parameters are trained
  const std::vector<OptimizerTensor>& optimizer;
  const Tokenizer& tokenizer;
  const TextFacts& facts;
  const TrainConfig& config;
  const RunState& state;
};

// Not thread-safe.
class CheckpointWriter {
 public:
  // A run goes on from the checkpoint of this step. base_files: those of DIR/base, if it lists any.
  void resumed(std::int64_t step, std::map<std::string, FileFacts> base_files);

  // Waits for a save that is going on. Throws what Trainer::save() throws.
  void save(const std::string& directory, const CheckpointContent& content);
  // The same from a copy, on a thread of its own; what goes wrong, finish() throws.
  void begin(const std::string& directory, const CheckpointContent& content);
  // As Trainer::finish_saving().
  std::optional<std::int64_t> finish(bool wait);

 private:
  std::int64_t saved_step_ = -1;  // of the checkpoint that was last written or read; -1: none
  std::map<std::string, FileFacts> base_files_;
  std::future<std::int64_t> saving_;
};

}  // namespace qkv
