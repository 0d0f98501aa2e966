// SPDX-License-Identifier: Apache-2.0
// A model as a GGUF file.
#include <algorithm>
#include <stdexcept>

#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/gguf_tokenizer.h"
#include "formats/in_quotes.h"
#include "formats/model_directory.h"
#include "qkv/model_file.h"

namespace qkv {
namespace {

struct FileType {
  DType type;
  std::uint32_t number;  // general.file_type
};
constexpr FileType kFileTypes[] = {{DType::f32, 0},  {DType::f16, 1},  {DType::q4_0, 2},
                                   {DType::q4_1, 3}, {DType::q8_0, 7}, {DType::bf16, 32}};

FileType file_type(const std::string& name) {
  std::string known;
  for (const FileType& type : kFileTypes) {
    if (row_type_from_name(name) == type.type) return type;
    known += (known.empty() ? "" : ", ") + std::string(dtype_name(type.type));
  }
  throw std::invalid_argument("[gguf] type expected one of " + known + "; found " + in_quotes(name));
}

// Element `at` of a parameter, f32 or f64.
float element(const Tensor& tensor, std::int64_t at) {
  return tensor.dtype() == DType::f64 ? static_cast<float>(tensor.data<double>()[at]) : tensor.data<float>()[at];
}

class ModelWriter {
 public:
  ModelWriter(const Model& model, DType type) : model_(model), family_(gguf_family_of(model.config())), type_(type) {}

  void add_to(GgufWriter& file) {
    const ModelConfig& c = model_.config();
    write_gguf_config(file, family_, c);
    if (!(c.rope_scaling == RopeScaling{})) add_frequencies(file);
    const auto& infos = model_.infos();
    for (std::size_t i = 0; i < infos.size(); ++i) {
      const GgufPlace place = gguf_place(family_, c, infos[i], family_ == GgufFamily::gpt2);
      if (place.first > 0) continue;  // written with the first of the three
      std::vector<Part> parts{{place, &model_.parameters()[i]}};
      for (std::size_t k = i + 1; k < infos.size() && k < i + 6; ++k) {
        const GgufPlace other = gguf_place(family_, c, infos[k], family_ == GgufFamily::gpt2);
        if (other.tensor == place.tensor) parts.push_back({other, &model_.parameters()[k]});
      }
      add_tensor(file, infos[i].name, std::move(parts));
    }
  }

 private:
  struct Part {
    GgufPlace place;
    const Tensor* values;
  };

  // Vectors and positions stay f32, which readers expect. Four bits are too few for what is looked up by token.
  DType type_of(const std::string& name, bool matrix) const {
    if (!matrix || name == "position_embedding") return DType::f32;
    const bool by_token = name == "token_embedding" || name == "head";
    return by_token && (type_ == DType::q4_0 || type_ == DType::q4_1) ? DType::q8_0 : type_;
  }

  void add_tensor(GgufWriter& file, const std::string& name, std::vector<Part> parts) const {
    const GgufPlace& place = parts.front().place;
    const std::vector<std::int64_t> dims = place.dims;
    const bool matrix = dims.size() == 2;
    file.tensor(place.tensor, dims, type_of(name, matrix),
                [parts = std::move(parts), matrix](std::int64_t r, float* to) {
                  for (const Part& part : parts) {
                    const GgufPlace& p = part.place;
                    if (!matrix)
                      for (std::int64_t j = 0; j < p.count; ++j)
                        to[p.first + j] = element(*part.values, gguf_our_row(p, j));
                    if (!matrix || r < p.first || r >= p.first + p.count) continue;
                    const std::int64_t row = p.dims[0], ours = gguf_our_row(p, r - p.first);
                    for (std::int64_t j = 0; j < row; ++j)
                      to[j] = element(*part.values, p.transposed ? j * p.count + ours : ours * row + j);
                  }
                });
  }

  // By how much each frequency is divided, whatever the reason.
  void add_frequencies(GgufWriter& file) const {
    ModelConfig plain = model_.config();
    plain.rope_scaling = {};
    const std::vector<double> before = rotary_frequencies(plain), after = rotary_frequencies(model_.config());
    std::vector<float> factors;  // [head_dim / 2]
    for (std::size_t i = 0; i < before.size(); ++i) factors.push_back(static_cast<float>(before[i] / after[i]));
    const auto size = static_cast<std::int64_t>(factors.size());
    file.tensor("rope_freqs.weight", {size}, DType::f32,
                [factors](std::int64_t, float* to) { std::copy(factors.begin(), factors.end(), to); });
  }

  const Model& model_;
  GgufFamily family_;
  DType type_;
};

}  // namespace

void save_gguf(const std::string& path, const Model& model, const Tokenizer& tokenizer, const std::string& type,
               const TextFacts& facts) {
  const FileType kind = file_type(type);
  check_text_facts("[gguf]", facts, model.config());
  if (tokenizer.size() > model.config().vocab_size)
    throw std::invalid_argument(
        "[gguf] expected a tokenizer of at most vocab_size = " + std::to_string(model.config().vocab_size) +
        " tokens; found " + std::to_string(tokenizer.size()));
  GgufWriter file;
  ModelWriter(model, kind.type).add_to(file);
  file.u32("general.file_type", kind.number);
  file.u32("general.quantization_version", 2);
  write_gguf_tokenizer(file, tokenizer.data(), model.config().vocab_size, facts);
  if (!facts.chat_template.empty()) file.string("tokenizer.chat_template", facts.chat_template);
  file.write(path);
}

}  // namespace qkv
