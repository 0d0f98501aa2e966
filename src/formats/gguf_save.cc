// SPDX-License-Identifier: Apache-2.0
// Writes a model as a GGUF file.
#include <algorithm>
#include <stdexcept>

#include "formats/export.h"
#include "formats/gguf_config.h"
#include "formats/gguf_tokenizer.h"
#include "formats/in_quotes.h"
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
  ModelWriter(const Model& model, const Family& family, DType type) : model_(model), family_(family), type_(type) {}

  void add_to(GgufWriter& file) {
    write_gguf_config(file, family_, model_.config());
    const std::vector<ParameterInfo>& infos = model_.infos();
    const std::vector<TensorPlace> places = gguf_places(family_, model_.config(), infos);
    for (std::size_t i = 0; i < infos.size(); ++i) {
      if (places[i].first > 0) continue;  // written with the first part of the tensor
      std::vector<Part> parts;
      for (std::size_t k = i; k < infos.size() && infos[k].layer == infos[i].layer; ++k)
        if (places[k].name == places[i].name) parts.push_back({places[k], &model_.parameters()[k]});
      add_tensor(file, infos[i].role, std::move(parts));
    }
  }

 private:
  struct Part {
    TensorPlace place;
    const Tensor* values;
  };

  // Vectors and positions stay f32, as readers expect. Embeddings and head get at least q8_0, because 4 bits are too
  // few.
  DType type_of(ParameterRole role) const {
    const ParameterKind kind = kind_of(role);
    if (kind > ParameterKind::head || role == ParameterRole::position_embedding) return DType::f32;
    const bool by_token = kind != ParameterKind::matrix, four_bits = type_ == DType::q4_0 || type_ == DType::q4_1;
    return by_token && four_bits ? DType::q8_0 : type_;
  }

  void add_tensor(GgufWriter& file, ParameterRole role, std::vector<Part> parts) const {
    const TensorPlace& place = parts.front().place;
    const bool matrix = place.shape.rank() == 2;
    const std::string name = place.name;
    const std::int64_t row = place.shape[place.shape.rank() - 1];
    std::vector<std::int64_t> dims{row};
    if (matrix) dims.push_back(place.shape[0]);
    file.tensor(name, std::move(dims), type_of(role),
                [parts = std::move(parts), matrix, row](std::int64_t r, float* to) {
                  for (const Part& part : parts) {
                    const TensorPlace& p = part.place;
                    if (!matrix)
                      for (std::int64_t j = 0; j < p.count; ++j)
                        to[p.first + j] = element(*part.values, p.parameter_row(j));
                    if (!matrix || r < p.first || r >= p.first + p.count) continue;
                    const std::int64_t ours = p.parameter_row(r - p.first);
                    for (std::int64_t j = 0; j < row; ++j)
                      to[j] = element(*part.values, p.transposed ? j * p.count + ours : ours * row + j);
                  }
                });
  }

  const Model& model_;
  const Family& family_;
  DType type_;
};

}  // namespace

void save_gguf(const std::string& path, const Model& model, const Tokenizer& tokenizer, const std::string& type,
               const TextFacts& facts) {
  const FileType kind = file_type(type);
  const Family& family = exported_family(FileFormat::gguf, model.config(), tokenizer, facts);
  GgufWriter file;
  ModelWriter(model, family, kind.type).add_to(file);
  file.u32("general.file_type", kind.number);
  file.u32("general.quantization_version", 2);
  write_gguf_tokenizer(file, tokenizer.data(), model.config().vocab_size, facts);
  if (!facts.chat_template.empty()) file.string("tokenizer.chat_template", facts.chat_template);
  file.write(path);
}

}  // namespace qkv
