// SPDX-License-Identifier: Apache-2.0
#include "qkv/model_file.h"

#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "formats/config_json.h"
#include "formats/in_quotes.h"
#include "formats/safetensors.h"
#include "os/atomic_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

std::string config_path(const std::string& directory) { return directory + "/config.json"; }
std::string weights_path(const std::string& directory) { return directory + "/model.safetensors"; }
std::string tokenizer_path(const std::string& directory) { return directory + "/tokenizer.json"; }

std::vector<ParameterInfo> expected_parameters(const ModelConfig& config, const std::string& directory) {
  try {
    return parameter_infos(config);
  } catch (const std::invalid_argument& error) {  // sizes whose product cannot be counted
    throw FileError(config_path(directory), error.what());
  }
}

// The file holds the parameters of the configuration, exactly: looked at before memory is taken for a model, since a
// configuration of a few bytes may ask for any amount of it. Returns the type of the elements.
DType check_parameters(const SafetensorsFile& file, const ModelConfig& config, const std::string& directory) {
  if (static_cast<std::uint64_t>(config.n_layer) > file.tensors().size())
    throw FileError(file.path(), "holds " + std::to_string(file.tensors().size()) + " tensors, too few for the " +
                                     std::to_string(config.n_layer) + " layers of config.json");
  std::set<std::string_view> wanted;
  DType dtype = DType::f32;
  const std::vector<ParameterInfo> infos = expected_parameters(config, directory);
  for (const ParameterInfo& info : infos) {
    const ConstView view = file.find(info.name);
    if (!view) throw FileError(file.path(), "tensor " + in_quotes(info.name) + ": is missing");
    if (wanted.empty()) dtype = view.dtype;
    const bool usable = view.dtype == dtype && (dtype == DType::f32 || dtype == DType::f64);
    if (!usable || !(view.shape == info.shape))
      throw FileError(file.path(), "tensor " + in_quotes(info.name) + ": expected " + to_string(info.shape) +
                                       " of F32 (or all of F64); found " + to_string(view.shape) + " of " +
                                       std::string(dtype_name(view.dtype)));
    wanted.insert(info.name);
  }
  for (const SafetensorsFile::Entry& entry : file.tensors())
    if (!wanted.contains(entry.name))
      throw FileError(file.path(), "tensor " + in_quotes(entry.name) + ": is no parameter of this configuration");
  return dtype;
}

void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  if (tokenizer.size() > config.vocab_size)
    throw std::invalid_argument(
        "[model file] expected a tokenizer of at most vocab_size = " + std::to_string(config.vocab_size) +
        " tokens; found " + std::to_string(tokenizer.size()));
}

}  // namespace

ModelConfig load_config(const std::string& path) { return read_config_json(path); }

LoadedModel load_model(const std::string& directory) {
  const ModelConfig config = load_config(config_path(directory));
  Tokenizer tokenizer = Tokenizer::load(tokenizer_path(directory));
  try {
    check_vocabulary(tokenizer, config);
  } catch (const std::invalid_argument& error) {
    throw FileError(tokenizer_path(directory), error.what());
  }
  const SafetensorsFile file(weights_path(directory));
  Model model(config, 0, check_parameters(file, config, directory));
  for (std::size_t i = 0; i < model.infos().size(); ++i) file.read(model.infos()[i].name, model.parameters()[i].view());
  return {std::move(model), std::move(tokenizer)};
}

void save_model(const std::string& directory, const Model& model, const Tokenizer& tokenizer) {
  check_vocabulary(tokenizer, model.config().resolved());
  make_directories(directory);
  std::vector<NamedView> tensors;
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    tensors.push_back({model.infos()[i].name, model.parameters()[i].view()});
  tokenizer.save(tokenizer_path(directory));
  write_config_json(config_path(directory), model.config());
  write_safetensors(weights_path(directory), std::move(tensors),
                    {{"format", "qkv"}, {"qkv_format", std::to_string(kFormatVersion)}});
}

}  // namespace qkv
