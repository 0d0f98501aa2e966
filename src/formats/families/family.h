// SPDX-License-Identifier: Apache-2.0
// A model family as stored by Hugging Face `transformers` and llama.cpp: a table of names and keys, one file per family
// (docs/adding_a_family.md). No other code names a family.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/model_config.h"

namespace qkv {

class HfKeys;
class GgufKeys;

// The name of a parameter's tensor; {layer} is the layer number.
struct RoleName {
  ParameterRole role;
  std::string_view name;
};

// LLaMA's names, shared by most families.
extern const std::span<const RoleName> llama_hf_names, llama_gguf_names;

struct Family {
  // `model_type` of config.json and `general.architecture` of GGUF files; empty if the format does not have the family.
  std::string_view hf_type, gguf_type;
  std::string_view hf_class;  // the class in `transformers`: "LlamaForCausalLM"

  // Members common to all models of the family, and defaults for members that files may omit.
  ModelConfig (*base)() = nullptr;
  // Reads the keys of a configuration into members, or writes the members as keys; each key is named once.
  // fitting_family() rejects, by name, members that would not be read back, so nothing is lost silently.
  void (*hf)(HfKeys& file, ModelConfig& config) = nullptr;
  void (*gguf)(GgufKeys& file, ModelConfig& config) = nullptr;

  // Tensor names that differ from LLaMA's. Parameters with the same name are concatenated in one tensor, in qkv's order
  // (Q, K, V; gate, up).
  std::span<const RoleName> hf_names = {}, gguf_names = {};
  std::span<const std::string_view> hf_ignored = {};  // name suffixes of tensors that are not parameters
  bool hf_in_out = false;                             // layer matrices are stored [in, out], not [out, in]
  bool gguf_pairs = false;                            // rows of Q and K: rotary pairs are adjacent
  bool gguf_joined_qkv = false;                       // written as one tensor, attn_qkv; files may have either form
  bool gguf_missing_biases = false;                   // missing biases are 0
};

// In the order in which they are tried on export.
std::span<const Family* const> families();

enum class FileFormat : std::uint8_t { hugging_face, gguf };
// The name, with {layer}; empty if the family does not have the parameter.
std::string_view tensor_name(const Family& family, FileFormat format, ParameterRole role) noexcept;
std::string_view type_in(const Family& family, FileFormat format) noexcept;
const Family* find_family(FileFormat format, std::string_view type) noexcept;  // null: unknown
std::string known_families(FileFormat format);                                 // "gpt2, qwen2 and llama"

// The first family whose files can represent the configuration: `read_back` gives the configuration that such a file
// would be read as. Throws std::invalid_argument that lists every member that the closest families cannot represent.
const Family& fitting_family(FileFormat format, const ModelConfig& config,
                             const std::function<ModelConfig(const Family&)>& read_back);

// A parameter's place in a stored tensor.
struct TensorPlace {
  std::string name;         // of the tensor
  Dims shape;               // of the tensor, outermost first
  bool transposed = false;  // stored [out, in]
  int axis = 0;             // tensor axis along which the parameter is [first, first + count)
  std::int64_t first = 0, count = 0;
  std::int64_t head_dim = 0;    // if not 0: rows 2 i and 2 i + 1 of a head are the parameter's i and i + head_dim / 2
  bool may_be_missing = false;  // 0 if missing

  // The parameter's row for row j of the tensor, and the inverse; both relative to the parameter's first row.
  std::int64_t parameter_row(std::int64_t j) const noexcept {
    if (head_dim == 0) return j;
    const std::int64_t within = j % head_dim;
    return j - within + within % 2 * (head_dim / 2) + within / 2;
  }
  std::int64_t tensor_row(std::int64_t i) const noexcept {
    if (head_dim == 0) return i;
    const std::int64_t within = i % head_dim, half = head_dim / 2;
    return i - within + within % half * 2 + within / half;
  }
};

// [i]: the place of infos[i]; infos must be parameter_infos(config), config resolved. joined_qkv: whether Q, K and V of
// a layer are one tensor in the GGUF file. Throws std::invalid_argument for a parameter that the family has no name
// for.
std::vector<TensorPlace> tensor_places(const Family& family, FileFormat format, const ModelConfig& config,
                                       const std::vector<ParameterInfo>& infos,
                                       const std::function<bool(std::int64_t layer)>& joined_qkv = {});

// Zero-copy view of the parameter in a stored tensor, [in, out]. Not for permuted rows.
template <class AnyView>
AnyView part_of(const TensorPlace& place, AnyView stored) {
  using Byte = std::conditional_t<std::is_same_v<AnyView, View>, std::byte, const std::byte>;
  const std::int64_t elements = place.first * stored.strides[place.axis];
  stored.data = static_cast<Byte*>(stored.data) + elements * static_cast<std::int64_t>(dtype_size(stored.dtype));
  stored.shape[place.axis] = place.count;
  return place.transposed ? swap_axes(stored, 0, 1) : stored;
}

// The divisor of each rotary frequency, from all kinds of scaling. [rotated / 2]
std::vector<double> rotary_divisors(const LayerConfig& layer);

// "wq" for "layers.3.wq": the name without the layer.
std::string name_in_layer(const ParameterInfo& info);

}  // namespace qkv
