// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/convert_elements.h"
#include "formats/hf_config.h"
#include "formats/hf_names.h"
#include "formats/model_directory.h"
#include "formats/named_tokens.h"
#include "formats/safetensors.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

// A stored tensor and the parameters that are in it, in the order of their columns.
struct Stored {
  HfPlace place;
  std::vector<std::size_t> parameters;
};

std::vector<Stored> layout(HfFamily family, const Model& model) {
  const ModelConfig config = model.config().resolved();
  std::vector<Stored> result;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < model.infos().size(); ++i) {
    HfPlace place = hf_place(family, config, model.infos()[i]);
    const auto [found, is_new] = known.emplace(place.name, result.size());
    if (is_new) result.push_back({std::move(place), {}});
    result[found->second].parameters.push_back(i);
  }
  return result;
}

Tensor gathered(const Stored& stored, const Model& model, DType type) {
  Tensor result(stored.place.shape, type);  // as stored
  if (stored.parameters.size() == 1) {
    const ConstView parameter = model.parameters()[stored.parameters[0]].view();
    convert_elements(stored.place.transposed ? swap_axes(parameter, 0, 1) : parameter, result.view());
    return result;
  }
  const std::int64_t rows = result.shape().rank() == 2 ? result.shape()[0] : 1;
  const std::int64_t width = result.shape()[result.shape().rank() - 1];
  const auto size = static_cast<std::int64_t>(dtype_size(type));
  std::int64_t first = 0;
  for (const std::size_t i : stored.parameters) {
    const Tensor& parameter = model.parameters()[i];  // [rows, part] or [part]
    const std::int64_t part = parameter.size() / rows;
    Tensor converted(parameter.shape(), type);
    convert_elements(parameter.view(), converted.view());
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(static_cast<const std::byte*>(converted.raw()) + row * part * size, part * size,
                  static_cast<std::byte*>(result.raw()) + (row * width + first) * size);
    first += part;
  }
  return result;
}

std::int64_t bytes_of(const NamedView& tensor) {
  return element_count(tensor.view.shape) * static_cast<std::int64_t>(dtype_size(tensor.view.dtype));
}

void write_shards(const std::string& directory, std::vector<NamedView> tensors, std::int64_t shard_bytes) {
  std::vector<std::vector<NamedView>> shards(1);
  std::int64_t filled = 0, total = 0;
  for (NamedView& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    total += bytes;
    shards.back().push_back(std::move(tensor));
  }
  const std::string single = directory + "/model.safetensors", index = single + ".index.json";
  const std::map<std::string, std::string> metadata{{"format", "pt"}};
  std::error_code ignored;
  if (shards.size() == 1) {
    write_safetensors(single, std::move(shards[0]), metadata);
    std::filesystem::remove(index, ignored);
    return;
  }
  nlohmann::ordered_json map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const NamedView& tensor : shards[i]) map[tensor.name] = name;
    write_safetensors(directory + "/" + name, std::move(shards[i]), metadata);
  }
  const nlohmann::ordered_json file = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  replace_file(index, file.dump(2) + "\n");
  std::filesystem::remove(single, ignored);
}

// What `transformers` does not find in tokenizer.json: which added tokens have the names that templates use, and the
// template itself.
std::string tokenizer_config_text(const Tokenizer& tokenizer, const TextFacts& facts, const NamedTokens& named) {
  nlohmann::ordered_json file = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const auto name = [&](const char* key, std::int32_t id) {
    for (const AddedToken& token : tokenizer.data().added)
      if (token.id == id) file[key] = token.content;
  };
  name("bos_token", named.begin);
  name("eos_token", facts.end_tokens.empty() ? tokenizer.end_token() : facts.end_tokens.front());
  name("unk_token", named.unknown);
  name("pad_token", named.padding);
  if (!facts.chat_template.empty()) file["chat_template"] = facts.chat_template;
  return file.dump(2) + "\n";
}

}  // namespace

void save_hugging_face(const std::string& directory, const Model& model, const Tokenizer& tokenizer,
                       const HuggingFaceOptions& options) {
  if (options.type != DType::f32 && options.type != DType::f16 && options.type != DType::bf16)
    throw std::invalid_argument("[hugging face] expected the type f32, f16 or bf16; found " +
                                std::string(dtype_name(options.type)));
  if (options.shard_bytes < 1)
    throw std::invalid_argument("[hugging face] expected shards of at least a byte; found " +
                                std::to_string(options.shard_bytes));
  const ModelConfig& config = model.config();
  const HfFamily family = hf_family_of(config);
  if (tokenizer.size() > config.vocab_size)
    throw std::invalid_argument(
        "[hugging face] expected a tokenizer of at most vocab_size = " + std::to_string(config.vocab_size) +
        " tokens; found " + std::to_string(tokenizer.size()));
  check_text_facts("[hugging face]", options.facts, config);
  std::vector<std::int32_t> end_tokens = options.facts.end_tokens;
  if (end_tokens.empty() && tokenizer.end_token() >= 0) end_tokens.push_back(tokenizer.end_token());
  const NamedTokens named = completed(options.facts.named, tokenizer);
  const char* dtype = options.type == DType::f32 ? "float32" : options.type == DType::f16 ? "float16" : "bfloat16";
  make_directories(directory);
  tokenizer.save(directory + "/tokenizer.json");
  replace_file(directory + "/config.json", hf_config_text(family, config, dtype, end_tokens, named));
  replace_file(directory + "/generation_config.json", hf_generation_config_text(end_tokens, named));
  replace_file(directory + "/tokenizer_config.json", tokenizer_config_text(tokenizer, options.facts, named));
  std::error_code ignored;
  std::filesystem::remove(directory + "/chat_template.jinja", ignored);  // another model's
  std::vector<NamedView> tensors;
  for (const Stored& stored : layout(family, model)) {
    tensors.push_back({stored.place.name,
                       {nullptr, options.type, stored.place.shape, contiguous_strides(stored.place.shape)},
                       [stored, &model, type = options.type] { return gathered(stored, model, type); }});
  }
  write_shards(directory, std::move(tensors), options.shard_bytes);
}

}  // namespace qkv
