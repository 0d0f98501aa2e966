// SPDX-License-Identifier: Apache-2.0
// Models made from stored parameters, for every layer option: the same logits as the model with the same numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/block_types.h"
#include "core/float_types.h"
#include "model/tiny_models.h"
#include "qkv/stored_parameters.h"

namespace qkv {
namespace {

// The parameters of a model as stored in a file of one type. Block matrices are stored by column, the token embedding
// by row.
class Stored : public StoredParameters {
 public:
  // Rounds the model's parameters to the stored values.
  Stored(Model& model, DType type) : model_(&model), type_(type) {
    const Model::ParameterAccess parameters = model.change_parameters();
    for (std::size_t i = 0; i < model.infos().size(); ++i) {
      Tensor& tensor = parameters[i];
      std::vector<std::byte>& blocks = blocks_.emplace_back();
      if (type == DType::bf16 && tensor.shape().rank() == 2)
        for (float& x : std::span(tensor.data(), static_cast<std::size_t>(tensor.size()))) x = widen(narrow<bf16>(x));
      if (is_blocks(Stored::stored_type(i))) quantise(i, tensor, blocks);
    }
  }
  DType stored_type(std::size_t i) const override {
    const ParameterInfo& info = model_->infos()[i];
    if (info.shape.rank() != 2 || info.role == ParameterRole::position_embedding) return DType::f32;
    return is_blocks(type_) && rows_of(i) % 32 != 0 ? DType::f32 : type_;
  }
  void read(std::size_t i, View to) const override {
    const Tensor& from = std::as_const(*model_).parameters()[i];
    for (std::int64_t j = 0; j < from.size(); ++j)
      if (to.dtype == DType::bf16)
        static_cast<bf16*>(to.data)[j] = narrow<bf16>(from.data()[j]);
      else
        static_cast<float*>(to.data)[j] = from.data()[j];
  }
  void read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const override {
    const std::int64_t bytes = row_bytes(DType::q8_0, rows_of(i));
    std::copy_n(blocks_[i].data() + first * bytes, count * bytes, to);
  }

 private:
  bool by_row(std::size_t i) const { return model_->infos()[i].role == ParameterRole::token_embedding; }
  std::int64_t rows_of(std::size_t i) const { return model_->infos()[i].shape[by_row(i) ? 1 : 0]; }
  void quantise(std::size_t i, Tensor& tensor, std::vector<std::byte>& blocks) const {
    const std::int64_t in = rows_of(i), columns = tensor.size() / in, bytes = row_bytes(DType::q8_0, in);
    blocks.resize(static_cast<std::size_t>(columns * bytes));
    std::vector<float> column(static_cast<std::size_t>(in));
    const auto at = [&](std::int64_t j, std::int64_t k) { return by_row(i) ? j * in + k : k * columns + j; };
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t k = 0; k < in; ++k) column[static_cast<std::size_t>(k)] = tensor.data()[at(j, k)];
      quantise_row(DType::q8_0, column.data(), in, blocks.data() + j * bytes);
      dequantise_row(DType::q8_0, blocks.data() + j * bytes, in, column.data());
      for (std::int64_t k = 0; k < in; ++k) tensor.data()[at(j, k)] = column[static_cast<std::size_t>(k)];
    }
  }

  Model* model_;
  DType type_;
  std::vector<std::vector<std::byte>> blocks_;  // [parameter]
};

// Logits of a full pass, and the last logits of decoding token by token.
struct Found {
  Tensor logits;
  std::vector<float> last;
};
Found found_by(Model& model, const test::Tokens& tokens) {
  Found found{model.logits(tokens), std::vector<float>(static_cast<std::size_t>(model.config().vocab_size))};
  ModelState state = model.make_state();
  for (const std::int32_t& token : tokens.tokens) model.decode({&token, 1}, state, found.last);
  return found;
}

TEST(StoredModel, MatchesTheModelWithTheSameNumbersBitForBit) {
  for (const auto& [name, c] : test::models_of_many_shapes())
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name + " " + std::string(dtype_name(type)));
      Model model(c, 1);
      test::disturb<float>(model, 0.1, 2);
      const Stored stored(model, DType::bf16);
      model.set_compute_dtype(type);
      Model reader(c, stored, type);
      EXPECT_TRUE(reader.inference_only());
      const test::Tokens tokens = test::random_tokens(c, 1, c.ctx_len, 3);
      const Found expected = found_by(model, tokens), found = found_by(reader, tokens);
      EXPECT_EQ(std::memcmp(found.logits.raw(), expected.logits.raw(), expected.logits.bytes()), 0);
      EXPECT_EQ(found.last, expected.last);
    }
}

TEST(StoredModel, InBlocksIsNearTheModelWithTheSameNumbers) {
  std::vector<test::NamedConfig> models = test::tiny_models();
  for (test::NamedConfig& one : test::models_of_many_options()) models.push_back(std::move(one));
  for (auto& [name, c] : models) {
    SCOPED_TRACE(name);
    test::change_layers(c, [](LayerConfig& one) {
      one.head_dim = one.v_head_dim = 16;
      one.d_ff = one.d_ff == 40 ? 96 : 128;
    });
    c.d_model = 64;
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    const Stored stored(model, DType::q8_0);
    Model reader(c, stored, WeightType{});
    const test::Tokens tokens = test::random_tokens(c, 1, c.ctx_len, 3);
    const Found expected = found_by(model, tokens), found = found_by(reader, tokens);
    EXPECT_LT(reader.weight_bytes(), model.weight_bytes() / 3);
    double error = 0, size = 0;
    for (std::int64_t i = 0; i < expected.logits.size(); ++i) {
      const double e = expected.logits.data()[i], d = found.logits.data()[i] - e;
      error += d * d;
      size += e * e;
    }
    EXPECT_LT(std::sqrt(error), 1e-3 * std::sqrt(size));
    const float* last = found.logits.data() + found.logits.size() - c.vocab_size;
    EXPECT_EQ(std::memcmp(last, found.last.data(), found.last.size() * sizeof(float)), 0) << "the same bits";
  }
}

}  // namespace
}  // namespace qkv
