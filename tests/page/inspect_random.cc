// SPDX-License-Identifier: Apache-2.0
#include "page/inspect_random.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/random.h"

namespace qkv::test {
namespace {

const char* const kWords[] = {"The",
                              " cat",
                              " sat",
                              " on",
                              " the",
                              " mat",
                              ".",
                              "\n",
                              "蒔絵",
                              "師",
                              "は",
                              "硯箱",
                              "を",
                              "修復",
                              "した",
                              "。",
                              "Внимание",
                              " —",
                              " это",
                              " сумма",
                              "🌱",
                              " שלום",
                              "</script><script>window.hacked=1</script>",
                              "<img src=x onerror=window.hacked=2>",
                              " q",
                              " k",
                              " v",
                              " &amp;"};

// The contribution of head `h` of layer `l` to the score of key j for query i.
float habit(std::int64_t l, std::int64_t h, std::int64_t i, std::int64_t j, bool same, bool after_same) {
  switch ((7 * l + h) % 12) {
    case 2:
      return j == i - 1 ? 9.0f : 0.0f;
    case 5:
      return j == 0 ? 7.0f : 0.0f;
    case 7:
      return same ? 7.0f : j == 0 ? 3.0f : 0.0f;
    case 9:
      return after_same ? 8.0f : j == 0 ? 4.0f : 0.0f;
    case 11:
      return -0.3f * static_cast<float>(i - j);
    default:
      return j == 0 ? 3.0f : 0.0f;
  }
}

}  // namespace

RandomPass::RandomPass(std::int64_t n_layer, std::int64_t n_head, std::int64_t ctx, std::int64_t d_k,
                       std::uint64_t seed) {
  const Random random(seed);
  std::uint64_t at = 0;
  const auto drawn = [&] { return static_cast<float>(random.normal(at++)); };
  const auto fresh = [&](std::int64_t count) {
    numbers.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(count)));
    return numbers.back()->data();
  };
  page.model = "drawn <b>heads</b>";
  page.n_head = page.n_kv_head = n_head;
  page.d_k = page.d_v = d_k;
  constexpr std::int64_t kCount = std::size(kWords);
  for (std::int64_t t = 0; t < ctx; ++t) {
    page.ids.push_back(static_cast<std::int32_t>((t * t / 3 + t) % kCount));
    page.tokens.push_back(kWords[page.ids.back()]);
  }
  for (std::int64_t l = 0; l < n_layer; ++l) {
    const std::int64_t vectors = ctx * n_head * d_k, square = ctx * ctx;
    float* rows[4];  // q, k, v, z [ctx, n_head, d_k]
    for (float*& row : rows) {
      row = fresh(vectors);
      std::generate_n(row, vectors, drawn);
    }
    float* scaled = fresh(n_head * square);   // [n_head, ctx, ctx]
    float* pattern = fresh(n_head * square);  // [n_head, ctx, ctx]
    for (std::int64_t h = 0; h < n_head; ++h) {
      for (std::int64_t i = 0; i < ctx; ++i) {
        float* s = scaled + h * square + i * ctx;   // [ctx]
        float* p = pattern + h * square + i * ctx;  // [ctx]
        double sum = 0;
        for (std::int64_t j = 0; j < ctx; ++j) {
          const auto id = [&](std::int64_t t) { return page.ids[static_cast<std::size_t>(t)]; };
          s[j] = 2 * drawn() + habit(l, h, i, j, j < i && id(j) == id(i), j > 0 && j < i && id(j - 1) == id(i));
          if (j <= i) sum += std::exp(static_cast<double>(s[j]));
        }
        for (std::int64_t j = 0; j <= i; ++j) p[j] = static_cast<float>(std::exp(static_cast<double>(s[j])) / sum);
      }
    }
    page.layers.push_back({rows[0], rows[1], rows[2], rows[3], scaled, pattern});
  }
  page.lens_top = 5;
  for (std::int64_t stage = 0; stage <= n_layer; ++stage) {
    tops.push_back(std::make_unique<std::vector<std::int32_t>>());
    float* probs = fresh(ctx * 5);
    for (std::int64_t i = 0; i < ctx * 5; ++i) {
      tops.back()->push_back(
          static_cast<std::int32_t>((i * 5 + i / 5 + (stage > n_layer / 2 ? 3 : i + stage)) % kCount));
      const double sharp = 0.3 + 0.6 * static_cast<double>(stage + 1) / static_cast<double>(n_layer + 1);
      probs[i] = static_cast<float>(sharp * std::pow(1 - sharp, static_cast<double>(i % 5)));
    }
    float* others = fresh(3 * ctx);
    std::fill_n(others, 3 * ctx, 0.125f);
    page.lens.push_back({tops.back()->data(), probs, others, others + ctx, others + 2 * ctx});
  }
  for (std::int32_t id = 0; id < kCount; ++id) page.words.emplace_back(id, kWords[id]);
  page.rollout = page.layers.size() == 1 ? page.layers[0].pattern : nullptr;
}

}  // namespace qkv::test
