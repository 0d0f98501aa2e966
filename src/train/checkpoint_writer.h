// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints, synchronously or on a separate thread while training continues. A checkpoint is a directory that
// is created atomically and never changed:
//   config.json model.safetensors tokenizer.json   a model directory
//   optimizer.safetensors                           the optimizer's tensors, under the names it gives them
//   checkpoint.json                                 the state of the run; sizes and checksums of the other files
// A run that trains adapters stores them instead of the model's files, and their base model in DIR/base, which is
// written once and verified by checksum on every load. The model files in the run's directory are hard links to the
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

// The contents of a checkpoint.
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
  // The run resumes from the checkpoint of this step. base_files: the files of DIR/base that it lists, if any.
  void resumed(std::int64_t step, std::map<std::string, FileFacts> base_files);

  // Waits for a save in progress. Throws what Trainer::save() throws.
  void save(const std::string& directory, const CheckpointContent& content);
  // The same from a copy, on a separate thread; errors are thrown by finish().
  void begin(const std::string& directory, const CheckpointContent& content);
  // See Trainer::finish_saving().
  std::optional<std::int64_t> finish(bool wait);

 private:
  std::int64_t saved_step_ = -1;  // step of the checkpoint last written or read; -1: none
  std::map<std::string, FileFacts> base_files_;
  std::future<std::int64_t> saving_;
};

}  // namespace qkv
