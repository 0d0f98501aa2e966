// SPDX-License-Identifier: Apache-2.0
// Models whose weights keep the file's storage type: the same logits as the model loaded as f32, the same bits however
// a text is evaluated, and refusals of operations that need parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "formats/scratch.h"
#include "formats/small_models.h"
#include "qkv/model_file.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

std::vector<std::int32_t> random_text(std::int64_t count) {
  std::vector<std::int32_t> tokens;
  const Random random(3, 1);
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), 256)));
  return tokens;
}

std::string written(const Scratch& scratch, const std::string& type, bool tied) {
  const std::string path = scratch.path(type + (tied ? "_tied.gguf" : ".gguf"));
  ModelConfig config = test::small_llama();
  config.tied_head = tied;
  save_gguf(path, Model(config, 5), Tokenizer::bytes(), type);
  return path;
}

Tensor logits_of(Model& model, const std::vector<std::int32_t>& text) {
  return model.logits({1, static_cast<std::int64_t>(text.size()), text, {}, {}});  // [1, text, vocab_size]
}

double distance(const Tensor& a, const Tensor& b) {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a.data()[i] - b.data()[i], 2);
    size += std::pow(b.data()[i], 2);
  }
  return std::sqrt(difference / size);
}

TEST(StoredWeights, MatchTheLogitsOfTheDequantisedModel) {
  const Scratch scratch;
  const std::vector<std::int32_t> text = random_text(33);
  for (const bool tied : {false, true})
    for (const std::string type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"}) {
      SCOPED_TRACE(type + (tied ? " tied" : ""));
      const std::string path = written(scratch, type, tied);
      LoadedModel wide = load_model(path), stored = load_model_for_inference(path);
      EXPECT_TRUE(stored.model.inference_only());
      EXPECT_FALSE(wide.model.inference_only());
      const DType compute_dtype = type == "bf16" && fast_bf16() ? DType::bf16 : DType::f32;
      EXPECT_EQ(stored.model.compute_dtype(), compute_dtype);
      wide.model.set_compute_dtype(compute_dtype);
      const Tensor expected = logits_of(wide.model, text), found = logits_of(stored.model, text);
      if (type[0] == 'q')
        EXPECT_LT(distance(found, expected), 2e-4);
      else
        EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), found.bytes()), 0);
      EXPECT_EQ(stored.end_tokens, wide.end_tokens);
      if (type != "q4_0") continue;
      EXPECT_LT(stored.model.weight_bytes(), wide.model.weight_bytes() / 4);
    }
}

TEST(StoredWeights, CanBeExpandedOrRounded) {
  const Scratch scratch;
  const std::vector<std::int32_t> text = random_text(20);
  const std::string path = written(scratch, "q8_0", true);
  for (const DType type : {DType::f32, DType::bf16}) {
    LoadedModel wide = load_model(path), stored = load_model_for_inference(path, type);
    wide.model.set_compute_dtype(type);
    EXPECT_EQ(stored.model.compute_dtype(), type);
    const Tensor expected = logits_of(wide.model, text), found = logits_of(stored.model, text);
    if (type == DType::f32)
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), found.bytes()), 0);
    else  // the rows of the embedding are rounded too
      EXPECT_LT(distance(found, expected), 1e-2);
  }
}

TEST(StoredWeights, HaveTheSameBitsInAnyChunks) {
  const Scratch scratch;
  const std::vector<std::int32_t> text = random_text(37);
  for (const std::string type : {"bf16", "q8_0", "q4_1"}) {
    SCOPED_TRACE(type);
    Model model = load_model_for_inference(written(scratch, type, true)).model;
    const Tensor all = logits_of(model, text);
    std::vector<float> logits(static_cast<std::size_t>(model.config().vocab_size));
    for (const int threads : {1, 2, 3})
      for (const std::size_t chunk : {1, 5, 37}) {
        set_num_threads(threads);
        ModelState state = model.make_state();
        for (std::size_t at = 0; at < text.size(); at += chunk) {
          const std::size_t end = std::min(text.size(), at + chunk);
          model.decode(std::span(text).subspan(at, end - at), state, logits);
          EXPECT_EQ(std::memcmp(logits.data(), all.data() + (end - 1) * logits.size(), logits.size() * sizeof(float)),
                    0);
        }
      }
  }
  set_num_threads(0);
}

TEST(StoredWeights, RefuseOperationsThatNeedParameters) {
  const Scratch scratch;
  Model model = load_model_for_inference(written(scratch, "q8_0", false)).model;
  EXPECT_THROW(model.parameters(), std::invalid_argument);
  EXPECT_THROW(std::as_const(model).parameters(), std::invalid_argument);
  EXPECT_THROW(model.set_compute_dtype(DType::bf16), std::invalid_argument);
  EXPECT_THROW(model.zeros_like_parameters(), std::invalid_argument);
  std::vector<Tensor> gradients;
  EXPECT_THROW(model.loss_and_gradients({}, 1, gradients), std::invalid_argument);
  EXPECT_THROW(weight_type_from_name("q8_0"), std::invalid_argument);
  EXPECT_EQ(weight_type_from_name("auto"), std::nullopt);
}

}  // namespace
}  // namespace qkv
