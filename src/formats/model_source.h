// SPDX-License-Identifier: Apache-2.0
// A model in a file of any format, opened and checked, before memory is taken for its parameters.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "qkv/model.h"
#include "qkv/model_file.h"
#include "qkv/stored_parameters.h"
#include "qkv/tokenizer.h"

namespace qkv {

// One tensor as the file stores it.
struct StoredTensor {
  std::string name, type;           // type: "F32", "BF16", "Q8_0", ...
  std::vector<std::int64_t> shape;  // outermost first, of any rank
  std::uint64_t bytes = 0;
};

// Opening one checks everything that can be checked without reading the elements: every parameter of the configuration
// is there, with the shape and a type that qkv reads, and the file is large enough for it. Any number of threads may
// read one.
class ModelSource : public StoredParameters {
 public:
  const std::string& path() const noexcept { return path_; }
  const std::string& format() const noexcept { return format_; }  // "qkv", "Hugging Face llama", "GGUF v3", ...
  const ModelConfig& config() const noexcept { return config_; }  // resolved
  const std::vector<ParameterInfo>& infos() const noexcept { return infos_; }  // parameter_infos(config())
  // What else is to be told about it, in order: {"step", "1000"}, {"matrices", "[out, in]"}, ...
  const std::vector<std::pair<std::string, std::string>>& facts() const noexcept { return facts_; }
  const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }

  // The type that loses nothing: f64 if a parameter is stored so, bf16 if all are, else f32.
  virtual DType dtype() const = 0;
  // Writes parameter infos()[i] to `to` (row-major, infos()[i].shape; f32, f64 or bf16), converted and turned as qkv's
  // layout wants it. Throws qkv::FileError.
  void read(std::size_t i, View to) const override = 0;
  // Formats that store single numbers alone keep these.
  DType stored_type(std::size_t) const override { return DType::f32; }
  void read_blocks(std::size_t, std::int64_t, std::int64_t, std::byte*) const override {
    throw std::logic_error("[model source] this parameter is not stored in blocks");
  }
  // Throws qkv::FileError if there is none, or one that qkv cannot honour.
  virtual Tokenizer tokenizer() const = 0;
  // Ids that end a text, as the file says it; the first is the most usual one. May be empty.
  virtual std::vector<std::int32_t> end_tokens() const = 0;
  // The Jinja text of its chat template; empty if there is none. Throws qkv::FileError.
  virtual std::string chat_template() const { return ""; }
  // Of what the file names, not what the tokenizer does; `tokenizer` is tokenizer(). Throws qkv::FileError.
  virtual NamedTokens named_tokens(const Tokenizer& tokenizer) const {
    static_cast<void>(tokenizer);
    return {};
  }

 protected:
  ModelSource(std::string path, std::string format) : path_(std::move(path)), format_(std::move(format)) {}

  std::string path_, format_;
  ModelConfig config_;
  std::vector<ParameterInfo> infos_;
  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace qkv
