// SPDX-License-Identifier: Apache-2.0
#include "formats/directory_source.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "core/convert_elements.h"
#include "formats/config_json.h"
#include "formats/hf_config.h"
#include "formats/in_quotes.h"
#include "formats/named_tokens.h"
#include "formats/strict_json.h"
#include "formats/tensor_files.h"
#include "qkv/chat_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestConfig = 1 << 20;

struct AnyConfig {
  const Family* family = nullptr;  // null: qkv's own format
  ModelConfig config;
  std::vector<std::int32_t> end_tokens;
};

AnyConfig read_config(const std::string& path) {
  const nlohmann::json json = load_json(path, kLargestConfig);
  const JsonPlace file(path, json);
  const JsonPlace type = file.at("model_type");
  AnyConfig result;
  result.family = find_family(FileFormat::hugging_face, type.string());
  if (result.family) {
    result.config = read_hf_config(file, *result.family);
    result.end_tokens = read_hf_end_tokens(file);
  } else {
    result.config = read_config_json(file);
  }
  return result;
}

std::vector<std::int32_t> end_tokens_of(const std::string& directory, std::vector<std::int32_t> otherwise) {
  const std::string path = directory + "/generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return otherwise;
  const nlohmann::json json = load_json(path, kLargestConfig);
  std::vector<std::int32_t> ids = read_hf_end_tokens(JsonPlace(path, json));
  return ids.empty() ? otherwise : ids;
}

bool is_readable(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

class DirectorySource final : public ModelSource {
 public:
  DirectorySource(const std::string& directory, AnyConfig any)
      : ModelSource(directory, any.family ? "Hugging Face " + std::string(any.family->hf_type) : "qkv"),
        family_(any.family),
        files_(TensorFiles::open(directory)) {
    config_ = std::move(any.config);
    // Checked before allocating layer names: a few bytes of config.json can request any number of layers.
    if (static_cast<std::uint64_t>(config_.n_layer) > files_.size())
      throw FileError(files_.path(), "contains " + std::to_string(files_.size()) + " tensors, too few for the " +
                                         std::to_string(config_.n_layer) + " layers of config.json");
    try {
      infos_ = parameter_infos(config_);
    } catch (const std::invalid_argument& error) {  // the product of sizes overflows
      throw FileError(directory + "/config.json", error.what());
    }
    find_parameters();
    refuse_the_rest();
    tensors_ = files_.stored();
    end_tokens_ = end_tokens_of(directory, std::move(any.end_tokens));
  }

  DType dtype() const override {
    const auto is = [](DType dtype) { return [dtype](const Parameter& p) { return p.stored.dtype == dtype; }; };
    if (std::any_of(parameters_.begin(), parameters_.end(), is(DType::f64))) return DType::f64;
    return std::all_of(parameters_.begin(), parameters_.end(), is(DType::bf16)) ? DType::bf16 : DType::f32;
  }

  void read(std::size_t i, View to) const override {
    const Parameter& parameter = parameters_.at(i);
    convert_elements(part_of(parameter.place, parameter.stored), to);
  }

  DType stored_type(std::size_t i) const override {
    return parameters_.at(i).stored.dtype == DType::bf16 ? DType::bf16 : DType::f32;
  }

  Tokenizer tokenizer() const override { return Tokenizer::load(path_ + "/tokenizer.json"); }
  std::vector<std::int32_t> end_tokens() const override { return end_tokens_; }
  std::string chat_template() const override { return load_chat_template(path_); }
  NamedTokens named_tokens(const Tokenizer& tokenizer) const override {
    return read_directory_named_tokens(path_, tokenizer, config_.vocab_size);
  }

 private:
  struct Parameter {
    TensorPlace place;  // name: as stored in the file
    ConstView stored;
  };

  void find_parameters() {
    std::vector<TensorPlace> places;
    std::string prefix;  // of the full model; files of the base model omit it
    if (family_) {
      places = tensor_places(*family_, FileFormat::hugging_face, config_, infos_);
      prefix = places.front().name.substr(0, places.front().name.find('.') + 1);
    } else {
      for (const ParameterInfo& info : infos_) places.push_back({info.name, info.shape, false, 0, 0, info.shape[0]});
    }
    for (TensorPlace& place : places) {
      Parameter p{std::move(place), {}};
      p.stored = files_.find(p.place.name);
      if (!p.stored && !prefix.empty() && p.place.name.starts_with(prefix)) {
        const std::string bare = p.place.name.substr(prefix.size());
        p.stored = files_.find(bare);
        if (p.stored) p.place.name = bare;
      }
      if (!p.stored) throw FileError(files_.path(), "tensor " + in_quotes(p.place.name) + ": is missing");
      check(p.place.name, p.place.shape, p.stored);
      parameters_.push_back(std::move(p));
    }
  }

  void check(const std::string& name, const Dims& shape, const ConstView& stored) const {
    if (!is_readable(stored.dtype) || !(stored.shape == shape))
      throw FileError(files_.file_of(name)->path(), "tensor " + in_quotes(name) + ": expected " + to_string(shape) +
                                                        " of F32, F64, BF16 or F16; found " + to_string(stored.shape) +
                                                        " of " + std::string(dtype_name(stored.dtype)));
  }

  bool is_ignored(std::string_view name) const {
    return family_ && std::any_of(family_->hf_ignored.begin(), family_->hf_ignored.end(),
                                  [&](std::string_view end) { return name.ends_with(end); });
  }

  void refuse_the_rest() const {
    std::set<std::string_view> wanted;
    for (const Parameter& p : parameters_) wanted.insert(p.place.name);
    std::string_view head;
    if (family_) head = tensor_name(*family_, FileFormat::hugging_face, ParameterRole::head);
    for (const std::string_view name : files_.names()) {
      if (wanted.contains(name) || is_ignored(name)) continue;
      if (config_.tied_head && name == head) {  // some programs write it; it is ignored
        check(std::string(name), {config_.vocab_size, config_.d_model}, files_.find(name));
        continue;
      }
      throw FileError(files_.file_of(name)->path(),
                      "tensor " + in_quotes(name) + ": is not a parameter of this configuration");
    }
  }

  const Family* family_;
  TensorFiles files_;
  std::vector<Parameter> parameters_;  // [i] as infos_[i]
  std::vector<std::int32_t> end_tokens_;
};

}  // namespace

ModelConfig read_any_config(const std::string& path) { return read_config(path).config; }

std::unique_ptr<ModelSource> open_directory(const std::string& directory) {
  return std::make_unique<DirectorySource>(directory, read_config(directory + "/config.json"));
}

}  // namespace qkv
