// SPDX-License-Identifier: Apache-2.0
// ANDREA training checkpoints: NAME.bin (weights and Adam moments) and harris_segments.json in the same directory
// (docs/formats.md). Properties that a checkpoint does not store (parameter order, matrix orientation, norms,
// activation) are options here; inspect_model() lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv {

struct AndreaLayout {
  ModelConfig config;  // vocab_size 0: derived from harris_segments.json
  // Parameter names in file order: wte wpe lm_head, and per layer wq wk wv wo fc1 fc2 (or qkv's names); adjacent layer
  // names are repeated for each layer.
  std::string order = "wte,wpe,lm_head,wq,wk,wv,wo,fc1,fc2";
  bool out_in = true;        // matrices are [out, in], row-major; false: [in, out]. Embeddings are [vocab, d_model]
  bool bytes_first = false;  // ids: bytes, segments, end; otherwise segments, bytes, end
};

struct AndreaCheckpoint {
  std::int64_t step = 0;
  Model model;
  Tokenizer tokenizer;
  std::vector<Tensor> first_moments, second_moments;  // [i]: of the model's parameter i
  AndreaLayout layout;
};

// The layout is the given one, else andrea.json in the same directory, else the preset whose vocabulary size (from
// harris_segments.json) and parameter count match. Without moments, both lists are empty. Throws qkv::FileError; for a
// parameter count mismatch it reports both counts.
AndreaCheckpoint load_andrea(const std::string& path, const std::optional<AndreaLayout>& layout = {},
                             bool with_moments = true);

// Writes the file, harris_segments.json and andrea.json (the layout, so that it loads without options). Empty moments
// are written as zeros. Throws std::invalid_argument if the order does not list each of the configuration's parameters
// once, for moments of other shapes, for more than 2^31 - 1 parameters, and for a tokenizer that is not a Harris one.
void save_andrea(const std::string& path, const AndreaCheckpoint& checkpoint);
void save_andrea(const std::string& path, const Model& model, const Tokenizer& tokenizer, const AndreaLayout& layout,
                 std::int64_t step, const std::vector<Tensor>& first_moments,
                 const std::vector<Tensor>& second_moments);

// Adam moments of a model in qkv's format.
struct AdamState {
  std::int64_t step = 0;
  std::vector<Tensor> first_moments, second_moments;  // [i] as the model's parameter i
};
// From optimizer.safetensors in the directory (present in training checkpoints); nullopt if missing or of another
// optimizer. Throws qkv::FileError if it does not match the model.
std::optional<AdamState> load_adam_state(const std::string& directory, const Model& model);
void save_adam_state(const std::string& directory, const Model& model, const AdamState& state);

// harris_segments.json: a list of segments, or an object with one list of them. Throws qkv::FileError.
Tokenizer load_harris_segments(const std::string& path, bool bytes_first = false);

}  // namespace qkv
