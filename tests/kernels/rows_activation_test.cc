// SPDX-License-Identifier: Apache-2.0
// Activations, forward and backward, compared with the formulas in double, in every set.
#include <cmath>

#include "kernels/rows.h"

namespace qkv::test {
namespace {

struct Kind {
  RowActivation function;
  bool gated;
};
constexpr RowActivation kFunctions[] = {RowActivation::relu, RowActivation::relu2, RowActivation::gelu,
                                        RowActivation::silu, RowActivation::gelu_erf};

template <class F>
void each_kind(const F& f) {
  for (const RowActivation function : kFunctions)
    for (const bool gated : {false, true}) {
      SCOPED_TRACE("function " + std::to_string(static_cast<int>(function)) + (gated ? ", gated" : ""));
      f(Kind{function, gated});
    }
}

double exact_function(RowActivation function, double u) {
  switch (function) {
    case RowActivation::relu:
      return std::max(u, 0.0);
    case RowActivation::relu2:
      return std::max(u, 0.0) * std::max(u, 0.0);
    case RowActivation::gelu:
      return u / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (u + 0.044715 * u * u * u)));
    case RowActivation::silu:
      return u / (1 + std::exp(-u));
    case RowActivation::gelu_erf:
      return u / 2 * (1 + std::erf(u / std::sqrt(2.0)));
  }
  return 0;
}

double exact_activation(Kind kind, double g, double u) {
  return kind.gated ? exact_function(kind.function, g) * u : exact_function(kind.function, u);
}

template <class S>
struct ActivationArrays {
  ActivationArrays(std::int64_t size, bool hostile)
      : gate(size, 1), up(size, 2), a(size, 3), da(size, 4), dgate(size, 5), dup(size, 6) {
    Numbers numbers(static_cast<std::uint64_t>(size) + 3);
    fill_stored(numbers, gate, hostile, 2);
    fill_stored(numbers, up, hostile, 2);
    fill_stored(numbers, da, hostile);
  }
  Guarded<S> gate, up, a, da, dgate, dup;
};

template <class S>
std::vector<float> run_activation(const RowKernels& table, Kind kind, ActivationArrays<S>& x) {
  const auto [function, gated] = kind;
  table.of<S>().activation_forward(function, x.up.size(), gated ? x.gate.data() : nullptr, x.up.data(), x.a.data());
  table.of<S>().activation_backward(function, x.up.size(), gated ? x.gate.data() : nullptr, x.up.data(), x.da.data(),
                                    gated ? x.dgate.data() : nullptr, x.dup.data());
  std::vector<float> all = widened(x.a);
  append(all, widened(x.dup));
  append(all, widened(x.dgate));
  EXPECT_TRUE(x.a.intact() && x.dup.intact() && x.dgate.intact());
  return all;
}

TEST(RowActivations, GiveTheSameBitsInAllSets) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const bool hostile : {false, true})
      each_kind([&](Kind kind) {
        for (const std::int64_t size : kRowSizes) {
          SCOPED_TRACE("size " + std::to_string(size));
          expect_same_in_all_sets([&](const RowKernels& table) {
            ActivationArrays<S> arrays(size, hostile);
            return run_activation(table, kind, arrays);
          });
        }
      });
  });
}

TEST(RowActivations, MatchTheFormulas) {
  each_storage([](auto type) {
    using S = decltype(type);
    each_kind([&](Kind kind) {
      ActivationArrays<S> x(768, false);
      run_activation(*available_row_tables().back(), kind, x);
      for (std::int64_t i = 0; i < x.up.size(); ++i) {
        const double g = static_cast<double>(widen(x.gate[i])), u = static_cast<double>(widen(x.up[i])), h = 1e-5;
        const double da = static_cast<double>(widen(x.da[i])), exact = exact_activation(kind, g, u);
        ASSERT_NEAR(static_cast<double>(widen(x.a[i])), exact, tolerance<S>(exact, 1e-6)) << g << ' ' << u;
        const double by_up = da * (exact_activation(kind, g, u + h) - exact_activation(kind, g, u - h)) / (2 * h);
        ASSERT_NEAR(static_cast<double>(widen(x.dup[i])), by_up, tolerance<S>(by_up, 2e-6)) << u;
        if (!kind.gated) continue;
        const double by_gate = da * (exact_activation(kind, g + h, u) - exact_activation(kind, g - h, u)) / (2 * h);
        ASSERT_NEAR(static_cast<double>(widen(x.dgate[i])), by_gate, tolerance<S>(by_gate, 2e-6)) << g;
      }
    });
  });
}

TEST(RowActivations, KeepNaNAndEndsOfTheRange) {
  for (const RowKernels* table : available_row_tables()) {
    const float u[] = {kNaN, kInf, -kInf, -0.0f, kMax, -kMax};
    float a[6];
    for (const RowActivation kind : kFunctions) {
      table->f32.activation_forward(kind, 6, nullptr, u, a);
      EXPECT_TRUE(std::isnan(a[0]));
      EXPECT_EQ(a[1], kInf);
      EXPECT_EQ(a[3], 0);
      EXPECT_EQ(a[5], 0);
    }
    table->f32.activation_forward(RowActivation::relu, 6, nullptr, u, a);
    EXPECT_EQ(a[2], 0);
    EXPECT_EQ(a[4], kMax);
  }
}

TEST(RowActivations, WorkInPlace) {
  for (const RowKernels* table : available_row_tables()) {
    ActivationArrays<bf16> x(100, false);
    run_activation(*table, {RowActivation::silu, true}, x);
    const std::vector<float> a = widened(x.a), dup = widened(x.dup);
    table->half.activation_backward(RowActivation::silu, 100, x.gate.data(), x.up.data(), x.da.data(), x.dgate.data(),
                                    x.da.data());
    EXPECT_EQ(widened(x.da), dup);
    table->half.activation_forward(RowActivation::silu, 100, x.gate.data(), x.up.data(), x.up.data());
    EXPECT_EQ(widened(x.up), a);
  }
}

TEST(RowActivations, ReluBackwardAcceptsTheForwardResult) {
  for (const RowKernels* table : available_row_tables()) {
    ActivationArrays<bf16> x(100, false);
    run_activation(*table, {RowActivation::relu, false}, x);
    const std::vector<float> expected = widened(x.dup);
    table->half.activation_backward(RowActivation::relu, 100, nullptr, x.a.data(), x.da.data(), nullptr, x.dup.data());
    EXPECT_EQ(widened(x.dup), expected);
  }
}

}  // namespace
}  // namespace qkv::test
