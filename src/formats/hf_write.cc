// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/convert_elements.h"
#include "formats/export.h"
#include "formats/hf_config.h"
#include "formats/named_tokens.h"
#include "formats/safetensors.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

// The parameters that share one stored tensor.
struct Part {
  TensorPlace place;
  const Tensor* values;
};

std::vector<std::vector<Part>> stored_tensors(const Family& family, const Model& model) {
  std::vector<std::vector<Part>> result;
  std::map<std::string, std::size_t> known;
  const auto places = tensor_places(family, FileFormat::hugging_face, model.config().resolved(), model.infos());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto [found, is_new] = known.emplace(places[i].name, result.size());
    if (is_new) result.emplace_back();
    result[found->second].push_back({places[i], &model.parameters()[i]});
  }
  return result;
}

Tensor gathered(const std::vector<Part>& parts, DType type) {
  Tensor result(parts.front().place.shape, type);  // as stored in the file
  for (const Part& part : parts) convert_elements(part.values->view(), part_of(part.place, result.view()));
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

// Facts that `transformers` does not read from tokenizer.json: which added tokens have the names used by templates, and
// the chat template.
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
    throw std::invalid_argument("[hugging face] expected shards of at least one byte; found " +
                                std::to_string(options.shard_bytes));
  const ModelConfig& config = model.config();
  const Family& family = exported_family(FileFormat::hugging_face, config, tokenizer, options.facts);
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
  std::filesystem::remove(directory + "/chat_template.jinja", ignored);  // left over from another model
  std::vector<NamedView> tensors;
  for (std::vector<Part>& parts : stored_tensors(family, model)) {
    const TensorPlace& place = parts.front().place;
    NamedView tensor{place.name, {nullptr, options.type, place.shape, contiguous_strides(place.shape)}};
    tensor.make = [parts = std::move(parts), type = options.type] { return gathered(parts, type); };
    tensors.push_back(std::move(tensor));
  }
  write_shards(directory, std::move(tensors), options.shard_bytes);
}

}  // namespace qkv
