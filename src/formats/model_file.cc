// SPDX-License-Identifier: Apache-2.0
#include "qkv/model_file.h"

#include <stdexcept>
#include <string_view>
#include <vector>

#include "formats/config_json.h"
#include "formats/directory_source.h"
#include "formats/model_directory.h"
#include "formats/open_model.h"
#include "formats/safetensors.h"
#include "os/atomic_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  if (tokenizer.size() > config.vocab_size)
    throw std::invalid_argument(
        "[model file] expected a tokenizer of at most vocab_size = " + std::to_string(config.vocab_size) +
        " tokens; found " + std::to_string(tokenizer.size()));
}

Tokenizer checked_tokenizer(const ModelSource& source) {
  Tokenizer tokenizer = source.tokenizer();
  try {
    check_vocabulary(tokenizer, source.config());
  } catch (const std::invalid_argument& error) {
    throw FileError(source.path(), error.what());
  }
  for (const std::int32_t id : source.end_tokens())
    if (id >= source.config().vocab_size)
      throw FileError(source.path(), "the end token " + std::to_string(id) + " is past the vocabulary of " +
                                         std::to_string(source.config().vocab_size));
  return tokenizer;
}

std::vector<std::int32_t> end_tokens_of(const ModelSource& source, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ends = source.end_tokens();
  if (ends.empty() && tokenizer.end_token() >= 0) ends.push_back(tokenizer.end_token());
  return ends;
}

}  // namespace

ModelConfig load_config(const std::string& path) { return read_any_config(path); }

LoadedModel load_model(const std::string& path) {
  const std::unique_ptr<ModelSource> source = open_model(path);
  Tokenizer tokenizer = checked_tokenizer(*source);
  std::vector<Tensor> parameters;
  for (std::size_t i = 0; i < source->infos().size(); ++i) {
    parameters.emplace_back(source->infos()[i].shape, source->dtype() == DType::f64 ? DType::f64 : DType::f32);
    source->read(i, parameters.back().view());
  }
  Model model(source->config(), std::move(parameters));
  std::vector<std::int32_t> ends = end_tokens_of(*source, tokenizer);
  return {std::move(model), std::move(tokenizer), std::move(ends)};
}

LoadedModel load_model_for_reading(const std::string& path, WeightType type) {
  const std::unique_ptr<ModelSource> source = open_model(path);
  Tokenizer tokenizer = checked_tokenizer(*source);
  Model model(source->config(), *source, type);
  std::vector<std::int32_t> ends = end_tokens_of(*source, tokenizer);
  return {std::move(model), std::move(tokenizer), std::move(ends)};
}

Tokenizer load_model_tokenizer(const std::string& path) { return checked_tokenizer(*open_model(path)); }

ModelFacts inspect_model(const std::string& path) {
  const std::unique_ptr<ModelSource> source = open_model(path);
  ModelFacts facts{source->path(), source->format(), source->config(), source->facts(), {}, 0, source->end_tokens()};
  for (const StoredTensor& tensor : source->tensors())
    facts.tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes});
  const Tokenizer tokenizer = checked_tokenizer(*source);
  facts.tokenizer_size = tokenizer.size();
  if (facts.end_tokens.empty() && tokenizer.end_token() >= 0) facts.end_tokens.push_back(tokenizer.end_token());
  return facts;
}

void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer) {
  save_model(directory, model, tokenizer, {});
}

void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer,
                const std::function<void(const void* data, std::size_t size)>& weights_watcher) {
  check_vocabulary(tokenizer, model.config().resolved());
  make_directories(directory);
  std::vector<NamedView> tensors;
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    tensors.push_back({model.infos()[i].name, model.parameters()[i].view()});
  tokenizer.save(directory + "/tokenizer.json");
  write_config_json(directory + "/config.json", model.config());
  write_safetensors(directory + "/model.safetensors", std::move(tensors),
                    {{"format", "qkv"}, {"qkv_format", std::to_string(kFormatVersion)}}, weights_watcher);
}

}  // namespace qkv
