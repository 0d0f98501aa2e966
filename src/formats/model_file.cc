// SPDX-License-Identifier: Apache-2.0
#include "qkv/model_file.h"

#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "formats/config_json.h"
#include "formats/directory_source.h"
#include "formats/finite_parameters.h"
#include "formats/hf_config.h"
#include "formats/model_directory.h"
#include "formats/named_tokens.h"
#include "formats/open_model.h"
#include "formats/safetensors.h"
#include "os/atomic_file.h"
#include "qkv/chat_file.h"
#include "qkv/device.h"
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
      throw FileError(source.path(), "the end token " + std::to_string(id) + " is outside the vocabulary of " +
                                         std::to_string(source.config().vocab_size));
  return tokenizer;
}

std::vector<std::int32_t> end_tokens_of(const ModelSource& source, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ends = source.end_tokens();
  if (ends.empty() && tokenizer.end_token() >= 0) ends.push_back(tokenizer.end_token());
  return ends;
}

LoadedModel loaded(Model model, Tokenizer tokenizer, const ModelSource& source) {
  std::vector<std::int32_t> ends = end_tokens_of(source, tokenizer);
  const NamedTokens named = completed(source.named_tokens(tokenizer), tokenizer);
  return {std::move(model), std::move(tokenizer), std::move(ends), source.chat_template(), named};
}

// An existing file belongs to another model.
void write_or_remove(const std::string& path, const std::string& text) {
  std::error_code ignored;
  if (text.empty())
    std::filesystem::remove(path, ignored);
  else
    replace_file(path, text);
}

}  // namespace

std::vector<std::string> text_fact_files(const std::string& directory) {
  std::vector<std::string> names;
  for (const char* name : kTextFactFiles)
    if (std::filesystem::exists(directory + "/" + name)) names.emplace_back(name);
  return names;
}

ModelConfig load_config(const std::string& path) { return read_any_config(path); }

LoadedModel load_model(const std::string& path, std::string_view device) {
  if (!device.empty()) require_device(device);  // fails before the file is read
  const std::unique_ptr<ModelSource> source = open_model(path);
  Tokenizer tokenizer = checked_tokenizer(*source);
  std::vector<Tensor> parameters;
  for (std::size_t i = 0; i < source->infos().size(); ++i) {
    parameters.emplace_back(source->infos()[i].shape, source->dtype() == DType::f64 ? DType::f64 : DType::f32);
    FiniteParameters(*source).read(i, parameters.back().view());
  }
  Model model(source->config(), std::move(parameters));
  if (!device.empty() && device != model.device()) model = model.on_device(device);
  return loaded(std::move(model), std::move(tokenizer), *source);
}

LoadedModel load_model_for_inference(const std::string& path, WeightType type, std::string_view device) {
  if (!device.empty() && device != "cpu") return load_model(path, device);
  const std::unique_ptr<ModelSource> source = open_model(path);
  Tokenizer tokenizer = checked_tokenizer(*source);
  Model model(source->config(), FiniteParameters(*source), type);
  return loaded(std::move(model), std::move(tokenizer), *source);
}

Tokenizer load_model_tokenizer(const std::string& path) { return checked_tokenizer(*open_model(path)); }

ModelFacts inspect_model(const std::string& path) {
  const std::unique_ptr<ModelSource> source = open_model(path);
  ModelFacts facts{
      source->path(), source->format(), source->config(), source->facts(), {}, 0, {}, source->chat_template(), {}};
  for (const StoredTensor& tensor : source->tensors())
    facts.tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes});
  const Tokenizer tokenizer = checked_tokenizer(*source);
  facts.tokenizer_size = tokenizer.size();
  facts.end_tokens = end_tokens_of(*source, tokenizer);
  facts.named = completed(source->named_tokens(tokenizer), tokenizer);
  return facts;
}

void check_text_facts(const char* where, const TextFacts& facts, const ModelConfig& config) {
  const auto check = [&](const char* what, std::int32_t id, std::int32_t lowest) {
    if (id < lowest || id >= config.vocab_size)
      throw std::invalid_argument(std::string(where) + " expected " + what + " of the vocabulary, 0 to " +
                                  std::to_string(config.vocab_size - 1) + "; found " + std::to_string(id));
  };
  for (const std::int32_t id : facts.end_tokens) check("end tokens", id, 0);
  check("a begin token", facts.named.begin, -1);
  check("an unknown token", facts.named.unknown, -1);
  check("a padding token", facts.named.padding, -1);
  if (facts.chat_template.size() > largest_chat_template)
    throw std::invalid_argument(std::string(where) + " expected a chat template of at most " +
                                std::to_string(largest_chat_template) + " bytes; found " +
                                std::to_string(facts.chat_template.size()));
}

void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer, const TextFacts& facts) {
  save_model(directory, model, tokenizer, facts, {});
}

void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer, const TextFacts& facts,
                const std::function<void(const void* data, std::size_t size)>& weights_watcher) {
  check_vocabulary(tokenizer, model.config().resolved());
  check_text_facts("[model file]", facts, model.config());
  make_directories(directory);
  std::vector<NamedView> tensors;
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    tensors.push_back({model.infos()[i].name, model.parameters()[i].view()});
  tokenizer.save(directory + "/tokenizer.json");
  const bool tokenizer_says_it = (facts.end_tokens.empty() || facts.end_tokens == std::vector{tokenizer.end_token()}) &&
                                 completed(facts.named, tokenizer) == completed({}, tokenizer);
  write_or_remove(directory + "/generation_config.json",
                  tokenizer_says_it ? "" : hf_generation_config_text(facts.end_tokens, facts.named));
  write_or_remove(directory + "/chat_template.jinja", facts.chat_template);
  write_or_remove(directory + "/tokenizer_config.json", "");  // Hugging Face's, which may contain a template too
  write_config_json(directory + "/config.json", model.config());
  write_safetensors(directory + "/model.safetensors", std::move(tensors),
                    {{"format", "qkv"}, {"qkv_format", std::to_string(kTensorsVersion)}}, weights_watcher);
}

}  // namespace qkv
