// SPDX-License-Identifier: Apache-2.0
// Model files in all formats: qkv and Hugging Face directories, GGUF files and ANDREA checkpoints (docs/formats.md,
// docs/models.md; ANDREA specifics: qkv/andrea.h). The format is detected from the path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv {

// Ids of named special tokens, whether the tokenizer uses them or not; -1: none. Metadata only: the token put before a
// text is Tokenizer::begin_token().
struct NamedTokens {
  std::int32_t begin = -1, unknown = -1, padding = -1;  // also known as bos, unk and pad
  bool operator==(const NamedTokens&) const = default;
};

// Text metadata in a model's files besides the tokenizer; preserved when saving.
struct TextFacts {
  std::vector<std::int32_t> end_tokens = {};  // ids that end a text, the main one first; may be empty
  std::string chat_template = {};             // Jinja text (qkv/chat_template.h); empty: none
  NamedTokens named = {};
};

struct LoadedModel {
  Model model;
  Tokenizer tokenizer;
  std::vector<std::int32_t> end_tokens = {};  // ids that end a text, from the file; may be empty
  std::string chat_template = {};             // empty: none
  NamedTokens named = {};                     // from the file, else from the tokenizer

  TextFacts text_facts() const { return {end_tokens, chat_template, named}; }
};

// Loads a model: a directory (qkv or Hugging Face, by its config.json), a GGUF file (by its first bytes) or an ANDREA
// checkpoint (name ends in .bin). Parameters stored as F64 make an f64 model, all others an f32 one. With a device name
// (qkv/device.h), the model runs there, in that device's type. Throws qkv::FileError; std::invalid_argument for an
// unknown device.
LoadedModel load_model(const std::string& path, std::string_view device = {});
// The same for inference only (Model::inference_only): weights stay in the type the file stores (f32, bf16, q8_0, q4_0,
// q4_1) unless `type` asks for f32 or bf16; other stored types become f32. For devices other than "cpu", the same as
// load_model().
LoadedModel load_model_for_inference(const std::string& path, WeightType type = {}, std::string_view device = {});
Tokenizer load_model_tokenizer(const std::string& path);  // of a model in any of these formats
ModelConfig load_config(const std::string& path);         // only config.json, of qkv or Hugging Face

// Metadata of a model's files, without loading its parameters. Throws qkv::FileError.
struct ModelFacts {
  std::string path, format;                                // "qkv", "Hugging Face llama", ...
  ModelConfig config;                                      // resolved
  std::vector<std::pair<std::string, std::string>> notes;  // further information, in display order
  struct Stored {
    std::string name, type;           // as in the file
    std::vector<std::int64_t> shape;  // outermost first
    std::uint64_t bytes;
  };
  std::vector<Stored> tensors;
  std::int64_t tokenizer_size = 0;
  std::vector<std::int32_t> end_tokens;
  std::string chat_template;
  NamedTokens named;

  TextFacts text_facts() const { return {end_tokens, chat_template, named}; }
};
ModelFacts inspect_model(const std::string& path);

// Reads all of a model, or of a single file (.safetensors, its index, .npy, config.json, tokenizer.json,
// harris_segments.json), and returns a one-line description. Throws qkv::FileError if anything is malformed or
// inconsistent, or if parameters contain NaN or infinity.
std::string verify_path(const std::string& path);

// Whether a model with this configuration and tokenizer can be exported, judged without its weights: Hugging Face
// directories and GGUF files, in this order.
struct ExportFacts {
  std::string format;                  // "Hugging Face", "GGUF"
  std::string family;                  // "llama"; empty: no known family matches
  std::vector<std::string> obstacles;  // everything the format cannot represent; empty: exportable
};
std::vector<ExportFacts> export_facts(const ModelConfig& config, const Tokenizer& tokenizer,
                                      const TextFacts& facts = {});

// The save functions write the text facts; end tokens and named tokens missing there are taken from the tokenizer. All
// throw std::invalid_argument for a token outside the vocabulary.

// Each file is replaced atomically and synced; the directory is created if missing.
void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer,
                const TextFacts& facts = {});

// One GGUF file, version 3, for llama.cpp. type: "f32", "f16", "bf16", "q8_0", "q4_0" or "q4_1", for matrices; vectors
// and learned positions stay f32, and with four-bit types the token embedding and the head become q8_0. Throws
// std::invalid_argument for a model that no known family expresses, rows that are not a multiple of the type's block,
// and a tokenizer that the format cannot represent. Atomic; throws qkv::FileError.
// Only the first gguf_end_tokens end tokens are stored, the most the format supports. The file's bos token is the token
// that the tokenizer puts before a text, regardless of named tokens.
inline constexpr std::size_t gguf_end_tokens = 3;
void save_gguf(const std::string& path, const Model& model, const Tokenizer& tokenizer,
               const std::string& type = "bf16", const TextFacts& facts = {});

// A Hugging Face directory, for `transformers`: config.json, generation_config.json, tokenizer.json,
// tokenizer_config.json and model.safetensors, or shards of at most shard_bytes each with their index. type:
// DType::f32, f16 or bf16. Throws std::invalid_argument for a model that no known family expresses.
struct HuggingFaceOptions {
  DType type = DType::f32;
  std::int64_t shard_bytes = 5'000'000'000;
  TextFacts facts = {};
};
void save_hugging_face(const std::string& directory, const Model& model, const Tokenizer& tokenizer,
                       const HuggingFaceOptions& options = {});

}  // namespace qkv
