// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_source.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include "core/float_types.h"
#include "core/parallel.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_tokenizer.h"
#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

std::string dims_text(const std::vector<std::int64_t>& dims) { return to_string(Dims(std::span(dims))); }

// GGUF order, fastest-varying first.
std::vector<std::int64_t> dims_of(const TensorPlace& place) {
  return {std::reverse_iterator(place.shape.end()), std::reverse_iterator(place.shape.begin())};
}

// Reads the rows of a tensor given by `place` as columns of `to` [row, count], or as its rows.
template <class T>
void read_matrix(const Gguf& file, const GgufTensor& tensor, const TensorPlace& place, T* to) {
  constexpr std::int64_t kAtOnce = 16;  // file rows per task, so that writes to `to` are contiguous
  const std::int64_t row = tensor.row(), count = place.count;
  parallel_for((count + kAtOnce - 1) / kAtOnce, [&](std::int64_t task) {
    const std::int64_t begin = task * kAtOnce, n = std::min(kAtOnce, count - begin);
    std::vector<float> rows(static_cast<std::size_t>(n * row));  // [n, row]
    file.read_rows(tensor, place.first + begin, n, rows.data());
    for (std::int64_t j = 0; j < (place.transposed ? row : 0); ++j)
      for (std::int64_t r = 0; r < n; ++r)
        to[j * count + place.parameter_row(begin + r)] = narrow<T>(rows[static_cast<std::size_t>(r * row + j)]);
    for (std::int64_t i = 0; i < (place.transposed ? 0 : n * row); ++i)
      to[begin * row + i] = narrow<T>(rows[static_cast<std::size_t>(i)]);
  });
}

template <class T>
void read_vector(const Gguf& file, const GgufTensor& tensor, const TensorPlace& place, T* to) {
  std::vector<float> all(static_cast<std::size_t>(tensor.row()));
  file.read_rows(tensor, 0, 1, all.data());
  for (std::int64_t j = 0; j < place.count; ++j)
    to[place.parameter_row(j)] = narrow<T>(all[static_cast<std::size_t>(place.first + j)]);
}

template <class T>
void read_place(const Gguf& file, const GgufTensor* tensor, const TensorPlace& place, T* to) {
  if (!tensor)
    std::fill_n(to, place.count, T{});
  else if (place.shape.rank() == 1)
    read_vector(file, *tensor, place, to);
  else
    read_matrix(file, *tensor, place, to);
}

class GgufSource final : public ModelSource {
 public:
  GgufSource(const std::string& path, MappedFile mapped)
      : ModelSource(path, ""), mapped_(std::move(mapped)), file_(path, mapped_.bytes()) {
    inspect_keys();
  }
  GgufSource(const std::string& path, std::span<const std::byte> file) : ModelSource(path, ""), file_(path, file) {
    inspect_keys();
  }

  DType dtype() const override {
    const auto is_bf16 = [](const Parameter& p) { return p.tensor && p.tensor->type->type == DType::bf16; };
    return std::all_of(parameters_.begin(), parameters_.end(), is_bf16) ? DType::bf16 : DType::f32;
  }

  void read(std::size_t i, View to) const override {
    const Parameter& p = parameters_.at(i);
    if (!(to.shape == infos_[i].shape))
      throw std::invalid_argument("[gguf] expected a buffer of " + to_string(infos_[i].shape) + "; found " +
                                  to_string(to.shape));
    if (to.dtype == DType::f32)
      read_place(file_, p.tensor, p.place, static_cast<float*>(to.data));
    else if (to.dtype == DType::f64)
      read_place(file_, p.tensor, p.place, static_cast<double*>(to.data));
    else if (to.dtype == DType::bf16)
      read_place(file_, p.tensor, p.place, static_cast<bf16*>(to.data));
    else
      throw std::invalid_argument("[gguf] expected a buffer of f32, f64 or bf16; found " +
                                  std::string(dtype_name(to.dtype)));
  }

  DType stored_type(std::size_t i) const override {
    const Parameter& p = parameters_.at(i);
    if (!p.tensor || p.place.shape.rank() == 1) return DType::f32;
    switch (const DType type = *p.tensor->type->type) {
      case DType::bf16:
      case DType::q8_0:
      case DType::q4_0:
      case DType::q4_1:
        return type;
      default:
        return DType::f32;
    }
  }

  void read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const override {
    const Parameter& p = parameters_.at(i);
    if (!is_blocks(stored_type(i)) || first < 0 || count < 0 || first > p.place.count - count)
      throw std::invalid_argument("[gguf] expected columns of a block-quantised parameter; found " +
                                  std::to_string(first) + " ... of " + infos_.at(i).name);
    const auto bytes = static_cast<std::size_t>(row_bytes(*p.tensor->type->type, p.tensor->row()));
    for (std::int64_t j = first; j < first + count; ++j, to += bytes) {
      const auto row = static_cast<std::size_t>(p.place.first + p.place.tensor_row(j));
      std::memcpy(to, p.tensor->bytes.data() + row * bytes, bytes);
    }
  }

  Tokenizer tokenizer() const override {
    try {
      return Tokenizer::from_data(read_gguf_tokenizer(file_));
    } catch (const std::invalid_argument& error) {
      throw FileError(path_, error.what());
    }
  }

  std::vector<std::int32_t> end_tokens() const override {
    std::vector<std::int32_t> ids;
    for (const char* name : {"eos", "eot", "eom"}) {
      const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
      if (!file_.has(key)) continue;
      const auto id = static_cast<std::int32_t>(file_.integer(key, 0, config_.vocab_size - 1));
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return ids;
  }

  std::string chat_template() const override { return read_gguf_chat_template(file_); }

  NamedTokens named_tokens(const Tokenizer&) const override {
    const auto id = [&](const char* key) {
      return file_.has(key) ? static_cast<std::int32_t>(file_.integer(key, 0, config_.vocab_size - 1)) : -1;
    };
    return {id("tokenizer.ggml.bos_token_id"), id("tokenizer.ggml.unknown_token_id"),
            id("tokenizer.ggml.padding_token_id")};
  }

 private:
  void inspect_keys() {
    const Family& family = read_gguf_family(file_);
    format_ = "GGUF v" + std::to_string(file_.version()) + " " + std::string(family.gguf_type);
    config_ = read_gguf_config(file_, family);
    // Checked before allocating layer names: a few bytes can request any number of layers.
    if (static_cast<std::uint64_t>(config_.n_layer) > file_.tensors().size())
      file_.fail_key(std::string(family.gguf_type) + ".block_count",
                     "there are " + std::to_string(file_.tensors().size()) + " tensors, too few for " +
                         std::to_string(config_.n_layer) + " layers");
    try {
      infos_ = parameter_infos(config_);
    } catch (const std::invalid_argument& error) {  // the product of sizes overflows
      throw FileError(path_, error.what());
    }
    find_parameters(family);
    tell();
  }

  struct Parameter {
    TensorPlace place;
    const GgufTensor* tensor;  // null: a bias that is zero
  };

  void find_parameters(const Family& family) {
    const auto joined = [&](std::int64_t layer) {
      return file_.find_tensor("blk." + std::to_string(layer) + ".attn_qkv.weight") != nullptr;
    };
    std::set<std::string_view> used;
    if (!config_.rope_scaling.frequency_factors.empty()) used.insert("rope_freqs.weight");  // part of the configuration
    for (TensorPlace& place : tensor_places(family, FileFormat::gguf, config_, infos_, joined)) {
      Parameter p{std::move(place), nullptr};
      p.tensor = file_.find_tensor(p.place.name);
      const std::string where = "tensor " + in_quotes(p.place.name) + ": ";
      if (!p.tensor && !p.place.may_be_missing) throw FileError(path_, where + "is missing");
      if (p.tensor) {
        if (p.tensor->dims != dims_of(p.place))
          throw FileError(path_, p.tensor->offset,
                          where + "expected " + dims_text(dims_of(p.place)) + "; found " + dims_text(p.tensor->dims));
        if (!p.tensor->type->type)
          throw FileError(path_, p.tensor->offset,
                          where + "type " + std::string(p.tensor->type->name) + " is not supported");
        used.insert(p.tensor->name);
      }
      parameters_.push_back(std::move(p));
    }
    for (const GgufTensor& tensor : file_.tensors())
      if (!used.contains(tensor.name))
        throw FileError(path_, tensor.offset,
                        "tensor " + in_quotes(tensor.name) + ": is not a parameter of this configuration");
  }

  void tell() {
    using Fact = std::pair<const char*, const char*>;
    for (const auto& [key, what] : {Fact{"general.name", "name"}, Fact{"tokenizer.ggml.model", "tokenizer kind"},
                                    Fact{"tokenizer.ggml.pre", "split"}})
      if (const GgufKey* found = file_.find_key(key); found && found->type == GgufType::string)
        facts_.emplace_back(what, file_.string(key));
    for (const GgufTensor& tensor : file_.tensors())
      tensors_.push_back({std::string(tensor.name),
                          std::string(tensor.type->name),
                          {tensor.dims.rbegin(), tensor.dims.rend()},
                          tensor.bytes.size()});
  }

  MappedFile mapped_;  // empty if the caller owns the bytes
  Gguf file_;
  std::vector<Parameter> parameters_;  // [i] as infos_[i]
};

}  // namespace

std::unique_ptr<ModelSource> open_gguf(const std::string& path) {
  return std::make_unique<GgufSource>(path, MappedFile(path));
}

std::unique_ptr<ModelSource> open_gguf(const std::string& path, std::span<const std::byte> file) {
  return std::make_unique<GgufSource>(path, file);
}

}  // namespace qkv
