// SPDX-License-Identifier: Apache-2.0
// Models as files, of whichever format: qkv's own directories, Hugging Face's, GGUF files and ANDREA's checkpoints
// (docs/formats.md, docs/models.md; qkv/andrea.h has what is ANDREA's alone). A path is all that is needed to read one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv {

// Ids that programs know by a name, whether a tokenizer uses them or not; -1: nothing has the name. Nothing that qkv
// computes depends on them: what is put before a text is Tokenizer::begin_token().
struct NamedTokens {
  std::int32_t begin = -1, unknown = -1, padding = -1;  // elsewhere called bos, unk and pad
  bool operator==(const NamedTokens&) const = default;
};

// What a model's files say about texts, beside the tokenizer; writers keep it.
struct TextFacts {
  std::vector<std::int32_t> end_tokens = {};  // ids that end a text, the most usual one first; may be empty
  std::string chat_template = {};             // Jinja text (qkv/chat_template.h); empty: none
  NamedTokens named = {};
};

struct LoadedModel {
  Model model;
  Tokenizer tokenizer;
  std::vector<std::int32_t> end_tokens = {};  // ids that end a text, as the file says it; may be empty
  std::string chat_template = {};             // empty: none
  NamedTokens named = {};                     // as the file says it, else as the tokenizer does

  TextFacts text_facts() const { return {end_tokens, chat_template, named}; }
};

// The model at a path: a directory (qkv's or Hugging Face's, by its config.json), a GGUF file (by its first bytes) or a
// checkpoint of ANDREA (a name that ends in .bin). Parameters stored as F64 make a model of DType::f64, all others one
// of DType::f32. With a device by name (qkv/device.h), the model runs there, in that device's type. Throws
// qkv::FileError; std::invalid_argument for an unknown device.
LoadedModel load_model(const std::string& path, std::string_view device = {});
// The same for reading and generating alone (Model::inference_only): weights stay as the file stores them, q8_0, q4_0
// and q4_1 in their blocks, unless `type` asks for f32 or bf16. What is stored in another type becomes f32. A device
// other than the processor gets the model that load_model() makes.
LoadedModel load_model_for_inference(const std::string& path, WeightType type = {}, std::string_view device = {});
Tokenizer load_model_tokenizer(const std::string& path);  // of a model of any of these formats
ModelConfig load_config(const std::string& path);         // config.json alone, of qkv or Hugging Face

// What a model's files say, without memory for its parameters. Throws qkv::FileError.
struct ModelFacts {
  std::string path, format;                                // "qkv", "Hugging Face llama", ...
  ModelConfig config;                                      // resolved
  std::vector<std::pair<std::string, std::string>> notes;  // what else there is to tell, in order
  struct Stored {
    std::string name, type;           // as the file has them
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

// Reads all of a model, or of a single file (.safetensors, its index, .npy, config.json,
// tokenizer.json, harris_segments.json), and returns
// what it is, in words. Throws qkv::FileError for what is malformed, does not fit together or holds NaN or infinity
// among its parameters.
std::string verify_path(const std::string& path);

// Whether a model with this configuration and tokenizer can be written in the formats of other programs, without its
// weights: Hugging Face's directories and GGUF files, in this order.
struct ExportFacts {
  std::string format;                  // "Hugging Face", "GGUF"
  std::string family;                  // "llama"; empty: no known family has the architecture
  std::vector<std::string> obstacles;  // everything that the format cannot hold; empty: it can be written
};
std::vector<ExportFacts> export_facts(const ModelConfig& config, const Tokenizer& tokenizer,
                                      const TextFacts& facts = {});

// Writers keep the facts about texts: without end tokens or names there, those of the tokenizer are the model's. All of
// them throw std::invalid_argument for a token outside the vocabulary.

// Each file is replaced atomically and synced; the directory is made if it is missing.
void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer,
                const TextFacts& facts = {});

// One GGUF file, version 3, which llama.cpp reads. type: "f32", "f16", "bf16", "q8_0", "q4_0" or "q4_1", for matrices;
// vectors and learned positions stay f32, and with four bits the token embedding and the head become q8_0. Throws
// std::invalid_argument for a model that no known family expresses, for rows that are no multiple of
// the type's block, and for a tokenizer that the format cannot say. Atomic; throws qkv::FileError.
// Of the end tokens the first gguf_end_tokens are kept, which is all that the format has room for; what the tokenizer
// puts before a text is the file's bos token, whatever else has that name.
inline constexpr std::size_t gguf_end_tokens = 3;
void save_gguf(const std::string& path, const Model& model, const Tokenizer& tokenizer,
               const std::string& type = "bf16", const TextFacts& facts = {});

// A Hugging Face directory, which `transformers` reads: config.json, generation_config.json, tokenizer.json,
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
