// SPDX-License-Identifier: Apache-2.0
// A model file of any format, opened and validated before memory for its parameters is allocated.
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

// One tensor as stored in the file.
struct StoredTensor {
  std::string name, type;           // type: "F32", "BF16", "Q8_0", ...
  std::vector<std::int64_t> shape;  // outermost first, any rank
  std::uint64_t bytes = 0;
};

// Opening a source checks everything that does not require reading the elements: every parameter of the configuration
// exists with the right shape and a supported type, and the file is large enough. Thread-safe.
class ModelSource : public StoredParameters {
 public:
  const std::string& path() const noexcept { return path_; }
  const std::string& format() const noexcept { return format_; }  // "qkv", "Hugging Face llama", "GGUF v3", ...
  const ModelConfig& config() const noexcept { return config_; }  // resolved
  const std::vector<ParameterInfo>& infos() const noexcept { return infos_; }  // parameter_infos(config())
  // Other facts to print, in order: {"step", "1000"}, {"matrices", "[out, in]"}, ...
  const std::vector<std::pair<std::string, std::string>>& facts() const noexcept { return facts_; }
  const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }

  // The lossless type: f64 if any parameter is stored as f64, bf16 if all are bf16, else f32.
  virtual DType dtype() const = 0;
  // Reads parameter infos()[i] into `to` (row-major, infos()[i].shape; f32, f64 or bf16), converted and transposed to
  // qkv's layout. Throws qkv::FileError.
  void read(std::size_t i, View to) const override = 0;
  // Default for formats without block quantisation.
  DType stored_type(std::size_t) const override { return DType::f32; }
  void read_blocks(std::size_t, std::int64_t, std::int64_t, std::byte*) const override {
    throw std::logic_error("[model source] this parameter is not stored in blocks");
  }
  // Throws qkv::FileError if there is no tokenizer or an unsupported one.
  virtual Tokenizer tokenizer() const = 0;
  // End token ids from the file, the most common one first. May be empty.
  virtual std::vector<std::int32_t> end_tokens() const = 0;
  // The Jinja source of the chat template; empty if there is none. Throws qkv::FileError.
  virtual std::string chat_template() const { return ""; }
  // Only tokens named by the file; `tokenizer` is tokenizer(). Throws qkv::FileError.
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
