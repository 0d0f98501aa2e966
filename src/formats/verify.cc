// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "formats/directory_source.h"
#include "formats/finite_parameters.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/open_model.h"
#include "formats/tensor_files.h"
#include "qkv/andrea.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"

namespace qkv {
namespace {

// Reads all parameters, one at a time, and throws for non-finite values.
void check_numbers(const ModelSource& source) {
  for (std::size_t i = 0; i < source.infos().size(); ++i) {
    const ParameterInfo& info = source.infos()[i];
    Tensor values(info.shape);
    FiniteParameters(source).read(i, values.view());
  }
}

std::string verify_model(const std::string& path) {
  const ModelFacts facts = inspect_model(path);  // checks consistency
  const std::unique_ptr<ModelSource> source = open_model(path);
  check_numbers(*source);
  return facts.format + " model: " + std::to_string(parameter_count(facts.config)) + " parameters in " +
         std::to_string(facts.tensors.size()) + " tensors, tokenizer of " + std::to_string(facts.tokenizer_size);
}

// A GGUF file need not contain a model supported by qkv; then only the container is checked.
std::string verify_gguf(const std::string& path) {
  const GgufFile file(path);
  if (gguf_holds_model(*file)) return verify_model(path);
  return "GGUF v" + std::to_string(file->version()) + " container without a model of the families " +
         known_families(FileFormat::gguf) + ": " + std::to_string(file->keys().size()) + " keys, " +
         std::to_string(file->tensors().size()) + " tensors";
}

}  // namespace

std::string verify_path(const std::string& path) {
  const std::filesystem::path name = std::filesystem::path(path).filename();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return verify_model(path);
  if (name.string().ends_with(".safetensors.index.json")) {
    const TensorFiles files = TensorFiles::open_index(path);
    return "sharded safetensors: " + std::to_string(files.size()) + " tensors in " +
           std::to_string(files.files().size()) + " files";
  }
  if (name.extension() == ".safetensors")
    return "safetensors: " + std::to_string(SafetensorsFile(path).tensors().size()) + " tensors";
  if (name == "config.json") {
    const ModelConfig config = load_config(path);
    return "configuration of " + std::to_string(config.n_layer) + " layers, d_model " + std::to_string(config.d_model) +
           ", vocabulary " + std::to_string(config.vocab_size);
  }
  if (name == "harris_segments.json")
    return "Harris segments: " + std::to_string(load_harris_segments(path).size() - 257);
  if (name.extension() == ".json") return "tokenizer of " + std::to_string(Tokenizer::load(path).size()) + " tokens";
  if (name.extension() == ".npy") {
    const Tensor array = load_npy(path);
    return "array of " + std::string(dtype_name(array.dtype())) + " " + to_string(array.shape());
  }
  if (is_gguf_file(path)) return verify_gguf(path);
  return verify_model(path);
}

}  // namespace qkv
