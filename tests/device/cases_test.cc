// SPDX-License-Identifier: Apache-2.0
// ONNX's node tests for norms, rotary positions and softmax, run on the CPU. The folder is QKV_CASES_DIR.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "device/device.h"
#include "qkv/array_file.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Floats = std::vector<float>;

struct Case {
  fs::path folder;
  Json json;

  Tensor input(const std::string& name) const { return load_npy((folder / (name + ".npy")).string()); }
  bool has(const std::string& name) const { return json["inputs"].contains(name); }
  template <class T>
  T attribute(const char* name, T otherwise) const {
    return json["attributes"].value(name, otherwise);
  }
  void expect(const std::string& name, const Floats& found) const {
    const Tensor expected = input(name);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(expected.size()));
    const double rtol = json["default_tolerance"]["rtol"], atol = json["default_tolerance"]["atol"];
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double want = expected.data()[i];
      EXPECT_NEAR(found[i], want, atol + rtol * std::abs(want)) << json["name"] << " " << name << " " << i;
    }
  }
};

void check_norm(const Case& c, Norm kind) {
  const Tensor x = c.input("X"), w = c.input("W");
  int axis = c.attribute("axis", -1);
  if (axis < 0) axis += x.shape().rank();
  std::int64_t d = 1;
  for (int i = axis; i < x.shape().rank(); ++i) d *= x.shape()[i];
  const std::int64_t rows = x.size() / d;
  Floats y(static_cast<std::size_t>(x.size())), statistics(static_cast<std::size_t>(2 * rows)), mean, inverse;
  const Tensor bias = c.has("B") ? c.input("B") : Tensor();
  const NormParameters norm{kind, c.attribute("epsilon", 1e-5), view(w.data(), Dims{d}),
                            bias.raw() ? bias.view() : ConstView{}};
  find_device("cpu")->norm(norm, view(x.data(), Dims{rows, d}), view(y.data(), Dims{rows, d}),
                           view(statistics.data(), Dims{rows, 2}));
  c.expect("Y", y);
  if (kind == Norm::rmsnorm) return;
  for (std::size_t i = 0; i < statistics.size(); i += 2) {
    mean.push_back(statistics[i]);
    inverse.push_back(statistics[i + 1]);
  }
  c.expect("Mean", mean);
  c.expect("InvStdDev", inverse);
}

// ONNX rotates the first rotary_embedding_dim elements of each head; pairs are neighbours if interleaved. Ours are the
// halves of a whole head, so the elements are reordered first, and back afterwards.
void check_rotary(const Case& c) {
  const Tensor x = c.input("input"), cosines = c.input("cos_cache"), sines = c.input("sin_cache");
  ASSERT_EQ(x.shape().rank(), 4);
  const std::int64_t heads = x.shape()[1], ctx = x.shape()[2], d = x.shape()[3];
  std::int64_t turned = c.attribute<std::int64_t>("rotary_embedding_dim", 0);
  if (turned == 0) turned = d;
  const bool interleaved = c.attribute("interleaved", 0) != 0;
  const Dims shape{cosines.size() / (turned / 2), turned / 2};
  const RotaryTable table{view(cosines.data(), shape), view(sines.data(), shape)};
  const Tensor ids = c.has("position_ids") ? c.input("position_ids") : Tensor();
  Floats y(x.data(), x.data() + x.size());
  for (std::int64_t row = 0; row < x.size() / d; ++row) {
    const std::int64_t b = row / (heads * ctx), t = row % ctx, token = b * ctx + t;
    const std::int64_t position = ids.raw() ? ids.data<std::int64_t>()[token] : token;
    Floats pairs(static_cast<std::size_t>(turned));
    const auto place = [&](std::int64_t i) {
      return row * d + (interleaved ? 2 * (i % (turned / 2)) + i / (turned / 2) : i);
    };
    for (std::int64_t i = 0; i < turned; ++i)
      pairs[static_cast<std::size_t>(i)] = y[static_cast<std::size_t>(place(i))];
    find_device("cpu")->rotary({1, 1}, table, {1, turned, turned}, position, false,
                               view(pairs.data(), Dims{1, turned}));
    for (std::int64_t i = 0; i < turned; ++i)
      y[static_cast<std::size_t>(place(i))] = pairs[static_cast<std::size_t>(i)];
  }
  c.expect("output", y);
}

void check_softmax(const Case& c) {
  const Tensor x = c.input("x");
  const int axis = c.attribute("axis", -1), rank = x.shape().rank();
  ASSERT_TRUE(axis == -1 || axis == rank - 1);
  const std::int64_t n = x.shape()[rank - 1];
  // The gradient of the loss is softmax - onehot.
  Floats logits(x.data(), x.data() + x.size()), y(logits.size());
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(x.size() / n), 0);
  std::vector<double> losses(targets.size());
  const std::int64_t rows = x.size() / n;
  find_device("cpu")->cross_entropy(n, view(logits.data(), Dims{rows, n}), targets, 1, view(y.data(), Dims{rows, n}),
                                    view(losses.data(), Dims{rows}));
  for (std::int64_t i = 0; i < x.size(); i += n) y[static_cast<std::size_t>(i)] += 1.0f;
  c.expect("y", y);
}

TEST(Cases, OnnxNormsRotaryAndSoftmax) {
  const char* given = std::getenv("QKV_CASES_DIR");
  ASSERT_TRUE(given) << "QKV_CASES_DIR expected a folder of cases; found nothing";
  const fs::path root = fs::path(given) / "onnx_norm_rope";
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "case.json")) continue;
    std::ifstream file(entry.path() / "case.json");
    const Case c{entry.path(), Json::parse(file)};
    const std::string op = c.json["op"];
    SCOPED_TRACE(c.json["name"].get<std::string>());
    if (op == "RMSNormalization")
      check_norm(c, Norm::rmsnorm);
    else if (op == "LayerNormalization")
      check_norm(c, Norm::layernorm);
    else if (op == "RotaryEmbedding")
      check_rotary(c);
    else if (op == "Softmax")
      check_softmax(c);
    else
      ADD_FAILURE() << "unknown operator " << op;
    ++count;
  }
  std::cout << count << " cases of " << root.string() << "\n";
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace qkv
