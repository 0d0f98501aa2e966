// SPDX-License-Identifier: Apache-2.0
// ANDREA's training checkpoints: NAME.bin (weights and Adam's moments) with harris_segments.json beside it
// (docs/formats.md). What a checkpoint does not say of itself (order of the parameters, orientation of matrices, norms,
// activation) is an option here, and is told by inspect_model().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv {

struct AndreaLayout {
  ModelConfig config;  // vocab_size: 0 is derived from harris_segments.json
  // Names in the order of the file: wte wpe lm_head, and of a layer wq wk wv wo fc1 fc2 (or qkv's own names); layer
  // names that stand together are repeated for each layer.
  std::string order = "wte,wpe,lm_head,wq,wk,wv,wo,fc1,fc2";
  bool out_in = true;        // matrices are [out, in], row-major; false: [in, out]. Embeddings are [vocab, d_model]
  bool bytes_first = false;  // ids: bytes, segments, end; otherwise segments, bytes, end
};

struct AndreaCheckpoint {
  std::int64_t step = 0;
  Model model;
  Tokenizer tokenizer;
  std::vector<Tensor> first_moments, second_moments;  // [i] as the model's parameter i
  AndreaLayout layout;
};

// The layout is the one given, or that of andrea.json beside the file, or the preset whose vocabulary has the size that
// harris_segments.json gives and whose parameters are as many as the file holds. Without moments, the lists of them are
// empty. Throws qkv::FileError; if the numbers of parameters differ it names both.
AndreaCheckpoint load_andrea(const std::string& path, const std::optional<AndreaLayout>& layout = {},
                             bool with_moments = true);

// Writes the file, harris_segments.json and andrea.json (the layout, so that it reads back without options). Empty
// moments are written as zeros. Throws std::invalid_argument for an order that is not the configuration's parameters,
// each once, for moments of other shapes, for a model of more than 2^31 - 1 parameters and for a tokenizer that is no
// Harris one.
void save_andrea(const std::string& path, const AndreaCheckpoint& checkpoint);
void save_andrea(const std::string& path, const Model& model, const Tokenizer& tokenizer, const AndreaLayout& layout,
                 std::int64_t step, const std::vector<Tensor>& first_moments,
                 const std::vector<Tensor>& second_moments);

// Adam's moments beside a model of qkv's own format.
struct AdamState {
  std::int64_t step = 0;
  std::vector<Tensor> first_moments, second_moments;  // [i] as the model's parameter i
};
// From optimizer.safetensors in the directory (a checkpoint of a training run has one); nothing if it is not there or
// has the state of another optimizer. Throws qkv::FileError if it does not fit the model.
std::optional<AdamState> load_adam_state(const std::string& directory, const Model& model);
void save_adam_state(const std::string& directory, const Model& model, const AdamState& state);

// harris_segments.json: a list of segments, or an object with one list of them. Throws qkv::FileError.
Tokenizer load_harris_segments(const std::string& path, bool bytes_first = false);

}  // namespace qkv
