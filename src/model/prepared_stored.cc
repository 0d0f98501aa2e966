// SPDX-License-Identifier: Apache-2.0
// Matrices made ready for products straight from a file: no f32 copy of the model is made.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "core/float_types.h"
#include "model/prepared.h"

namespace qkv {
namespace {

struct StoredRow {
  StoredType type;
  std::string_view name;
  BlockType blocks;
};
constexpr StoredRow kStored[] = {{StoredType::f32, "f32", BlockType::f32},
                                 {StoredType::bf16, "bf16", BlockType::bf16},
                                 {StoredType::q8_0, "q8_0", BlockType::q8_0},
                                 {StoredType::q4_0, "q4_0", BlockType::q4_0},
                                 {StoredType::q4_1, "q4_1", BlockType::q4_1}};
const StoredRow& row_of(StoredType type) noexcept { return kStored[static_cast<std::size_t>(type)]; }

// Where the parameters of each role stand in the flat order, counted from 1; 0: there is none.
ModelParameters<std::size_t> numbers_of(const ModelConfig& c) {
  ModelParameters<std::size_t> numbers;
  std::size_t i = 0;
  visit_parameters(c, numbers, [&](const std::string&, const Dims&, bool, std::size_t& slot) { slot = ++i; });
  return numbers;
}

struct Part {
  std::size_t number;  // from 1
  std::int64_t columns;
};

class Preparation {
 public:
  Preparation(DType operand, const StoredParameters& source, bool keep_blocks)
      : operand_(operand), source_(source), keep_blocks_(keep_blocks) {}

  // Columns of blocks of parameter `number`.
  BlockColumns columns_of(const Part& part) const {
    const std::size_t i = part.number - 1;
    const StoredParameters* source = &source_;
    return {row_of(source_.stored_type(i)).blocks, part.columns,
            [source, i](std::int64_t first, std::int64_t count, std::byte* to) {
              source->read_blocks(i, first, count, to);
            }};
  }
  bool stays_in_blocks(std::size_t number, std::int64_t in) const {
    return keep_blocks_ && in % 32 == 0 && is_blocks(source_.stored_type(number - 1));
  }
  Tensor read(std::size_t number, const Dims& shape, DType dtype) const {
    Tensor values(shape, dtype);
    source_.read(number - 1, values.view());
    return values;
  }

  // W [in, out] from its parts side by side.
  void matrix(std::int64_t in, std::int64_t out, std::span<const Part> parts, Weights& w) const {
    w = Weights(operand_, in, out);
    if (std::all_of(parts.begin(), parts.end(), [&](const Part& p) { return stays_in_blocks(p.number, in); })) {
      std::vector<BlockColumns> columns;
      for (const Part& part : parts) columns.push_back(columns_of(part));
      return w.prepare_blocks(columns);
    }
    std::vector<Tensor> values;
    std::vector<MatrixPart<float>> matrices;
    for (const Part& part : parts) {
      values.push_back(read(part.number, Dims{in, part.columns}, DType::f32));
      matrices.push_back({values.back().data(), part.columns});
    }
    w.prepare<float>(matrices, false);
  }

  template <class T>
  std::vector<T> biases(std::span<const Part> parts) const {
    std::vector<T> all;
    for (const Part& part : parts) {
      if (part.number == 0) continue;
      const Tensor values = read(part.number, Dims{part.columns}, DType::f32);
      all.insert(all.end(), values.data(), values.data() + part.columns);
    }
    return all;
  }

 private:
  DType operand_;
  const StoredParameters& source_;
  bool keep_blocks_;
};

}  // namespace

std::string_view stored_type_name(StoredType type) noexcept { return row_of(type).name; }

std::string_view weight_type_name(WeightType type) noexcept {
  return type == WeightType::automatic ? "auto" : type == WeightType::f32 ? "f32" : "bf16";
}

WeightType weight_type_from_name(std::string_view name) {
  for (const WeightType type : {WeightType::automatic, WeightType::f32, WeightType::bf16})
    if (weight_type_name(type) == name) return type;
  throw std::invalid_argument("[weights] expected auto, f32 or bf16; found '" + std::string(name) + "'");
}

void EmbeddingRows::row(std::int32_t token, const Weights& head, float* to) const {
  if (table.raw()) {
    const std::int64_t d = table.shape()[1];
    if (table.dtype() == DType::f32)
      std::copy_n(table.data<float>() + token * d, d, to);
    else
      for (std::int64_t j = 0; j < d; ++j) to[j] = widen(table.data<bf16>()[token * d + j]);
  } else {
    (blocks.has_blocks() ? blocks : head).column(token, to);
  }
}

template <class T, class S>
void PreparedModel<T, S>::prepare_stored(const ModelConfig& c, const StoredParameters& source, bool keep_blocks) {
  if (std::is_same_v<T, double>) throw std::logic_error("[model] stored parameters expected a model of f32");
  const Preparation prepare(dtype_of<S>, source, keep_blocks);
  const ModelParameters<std::size_t> numbers = numbers_of(c);
  const std::int64_t q_size = c.n_head * c.head_dim, k_size = c.n_kv_head * c.head_dim;
  const std::int64_t v_size = c.n_kv_head * c.v_head_dim, out_size = c.n_head * c.v_head_dim;
  layers.resize(numbers.layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerParameters<std::size_t>& p = numbers.layers[i];
    PreparedLayer<T>& layer = layers[i];
    prepare.matrix(c.d_model, q_size + k_size + v_size,
                   std::array<Part, 3>{{{p.wq, q_size}, {p.wk, k_size}, {p.wv, v_size}}}, layer.qkv);
    layer.qkv_bias = prepare.template biases<T>(std::array<Part, 3>{{{p.bq, q_size}, {p.bk, k_size}, {p.bv, v_size}}});
    prepare.matrix(out_size, c.d_model, std::array<Part, 1>{{{p.wo, c.d_model}}}, layer.wo);
    prepare.matrix(c.d_ff, c.d_model, std::array<Part, 1>{{{p.w_down, c.d_model}}}, layer.down);
    const std::array<Part, 2> up{{{p.w_gate, c.d_ff}, {p.w_up, c.d_ff}}},
        up_bias{{{p.b_gate, c.d_ff}, {p.b_up, c.d_ff}}};
    const std::size_t from = c.gated ? 0 : 1;
    prepare.matrix(c.d_model, (2 - static_cast<std::int64_t>(from)) * c.d_ff, std::span(up).subspan(from), layer.up);
    layer.up_bias = prepare.template biases<T>(std::span(up_bias).subspan(from));
  }
  const Part tokens{numbers.token_embedding, c.vocab_size};
  const bool blocks = prepare.stays_in_blocks(tokens.number, c.d_model);
  if (!blocks)
    embedding.table =
        prepare.read(tokens.number, Dims{c.vocab_size, c.d_model}, std::is_same_v<S, bf16> ? DType::bf16 : DType::f32);
  if (!c.tied_head) {
    prepare.matrix(c.d_model, padded_vocab(c), std::array<Part, 1>{{{numbers.head, c.vocab_size}}}, head);
    if (blocks) {
      embedding.blocks = Weights(DType::f32, c.d_model, c.vocab_size);
      embedding.blocks.prepare_blocks(std::array<BlockColumns, 1>{{prepare.columns_of(tokens)}});
    }
  } else {
    head = Weights(dtype_of<S>, c.d_model, padded_vocab(c));
    if (blocks) {
      head.prepare_blocks(std::array<BlockColumns, 1>{{prepare.columns_of(tokens)}});
    } else {
      const Tensor wide =
          std::is_same_v<S, bf16> ? prepare.read(tokens.number, Dims{c.vocab_size, c.d_model}, DType::f32) : Tensor();
      head.prepare_transposed(wide.raw() ? wide.data() : embedding.table.data(), c.vocab_size, false);
    }
  }
  ready = stored = true;
  backward = false;
}

template void PreparedModel<float, float>::prepare_stored(const ModelConfig&, const StoredParameters&, bool);
template void PreparedModel<float, bf16>::prepare_stored(const ModelConfig&, const StoredParameters&, bool);
template void PreparedModel<double, double>::prepare_stored(const ModelConfig&, const StoredParameters&, bool);

}  // namespace qkv
