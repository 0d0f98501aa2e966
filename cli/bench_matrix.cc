// SPDX-License-Identifier: Apache-2.0
// Compares every attention option and every common head size with the plain case, to detect fallbacks to a slow path.
#include <fmt/format.h>
#include <qkv/kernels.h>
#include <qkv/threads.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_attention.h"
#include "bench_timing.h"
#include "output.h"

namespace qkv::cli {
namespace {

constexpr double kLeastRatio = 0.6;

struct Variant {
  std::string name;
  AttentionCase sizes;
  bool f16 = false;        // stored as f16 for any dtype
  bool gradients = false;  // differs only in the backward pass
};

AttentionCase with_mask(AttentionCase sizes, MaskKind kind, std::array<bool, 4> axes) {
  sizes.mask = kind;
  sizes.mask_axes = axes;
  return sizes;
}

void add_masks(const AttentionCase& plain, std::vector<Variant>& variants) {
  struct Broadcast {
    const char* name;
    std::array<bool, 4> axes;
  };
  constexpr Broadcast kBroadcasts[] = {
      {"[1, 1, q, k]", {false, false, true, true}}, {"[b, 1, 1, k]", {true, false, false, true}},
      {"[1, h, 1, k]", {false, true, false, true}}, {"[1, h, q, k]", {false, true, true, true}},
      {"[b, 1, q, k]", {true, false, true, true}},  {"[b, h, q, k]", {true, true, true, true}},
      {"[b, h, q, 1]", {true, true, true, false}}};
  for (const Broadcast& b : kBroadcasts)
    variants.push_back({std::string("bool mask ") + b.name, with_mask(plain, MaskKind::boolean, b.axes)});
  for (const Broadcast& b : kBroadcasts)
    variants.push_back({std::string("additive mask ") + b.name, with_mask(plain, MaskKind::additive, b.axes)});
  for (const Broadcast& b : kBroadcasts) {
    if (!b.axes[3]) continue;  // constant over keys: its gradient is 0
    Variant variant{std::string("dmask ") + b.name, with_mask(plain, MaskKind::additive, b.axes)};
    variant.sizes.wants_dmask = variant.gradients = true;
    variants.push_back(variant);
  }
}

std::vector<Variant> option_variants(const AttentionCase& plain) {
  std::vector<Variant> variants;
  const auto add = [&](const char* name, const auto& change) {
    Variant variant{name, plain};
    change(variant);
    variants.push_back(variant);
  };
  add("causal", [](Variant& x) { x.sizes.causal = true; });
  add("window q/4, causal", [&](Variant& x) {
    x.sizes.causal = true;
    x.sizes.window = std::max<std::int64_t>(1, plain.q_len / 4);
  });
  add("window q/8 on both sides", [&](Variant& x) {
    x.sizes.causal = false;
    x.sizes.window = std::max<std::int64_t>(1, plain.q_len / 8);
  });
  add("lengths", [](Variant& x) { x.sizes.lengths = true; });
  add("lengths, causal", [](Variant& x) { x.sizes.lengths = x.sizes.causal = true; });
  add("a quarter of the queries, causal", [&](Variant& x) {
    x.sizes.q_len = std::max<std::int64_t>(1, plain.q_len / 4);
    x.sizes.causal = true;
  });
  add("softcap", [](Variant& x) { x.sizes.softcap = 30; });
  add("ALiBi", [](Variant& x) { x.sizes.alibi = true; });
  add("ALiBi, causal", [](Variant& x) { x.sizes.alibi = x.sizes.causal = true; });
  add("sinks", [](Variant& x) { x.sizes.sinks = true; });
  add("dsinks", [](Variant& x) { x.sizes.sinks = x.sizes.wants_dsinks = x.gradients = true; });
  if (plain.n_head % 2 == 0)
    add("2 query heads per key head", [](Variant& x) { x.sizes.n_kv_head = x.sizes.n_head / 2; });
  add("one key head", [](Variant& x) { x.sizes.n_kv_head = 1; });
  add("d_v = d_k / 2", [](Variant& x) { x.sizes.d_v = (x.sizes.d_k + 1) / 2; });
  add("d_v = 2 d_k", [](Variant& x) { x.sizes.d_v = 2 * x.sizes.d_k; });
  add("memory [batch, seq, heads, d]", [](Variant& x) { x.sizes.heads_inside = true; });
  add("f16 storage", [](Variant& x) { x.f16 = true; });
  add_masks(plain, variants);
  return variants;
}

std::vector<Variant> variants_of(const AttentionCase& plain) {
  std::vector<Variant> variants = option_variants(plain);
  for (const std::int64_t d : {16, 32, 48, 64, 80, 96, 112, 128, 192, 256}) {
    Variant variant{fmt::format("head size {}", d), plain};
    variant.sizes.d_k = variant.sizes.d_v = d;
    variants.push_back(variant);
  }
  return variants;
}

struct Measured {
  double gflops, plain_gflops, ms, max_error;
  double ratio() const { return gflops / plain_gflops; }
};

// Measures a low ratio again, to exclude a momentary disturbance.
Measured measure(AttentionArrays& plain, const Variant& variant, Pass pass, DType dtype, const BenchOptions& options) {
  const bool backward = pass == Pass::backward;
  AttentionArrays arrays(variant.sizes, dtype);
  const Deviation deviation =
      run_and_check(arrays, backward, options.limit,
                    fmt::format("{} {} with '{}'", pass_name(pass), dtype_name(dtype), variant.name));
  const auto once = [backward](AttentionArrays& a) { return [&a, backward] { a.run(backward); }; };
  const int times = times_in_a_row(once(arrays)), plain_times = times_in_a_row(once(plain));
  const auto measured = [&] {
    std::vector<double> seconds, plain_seconds;
    for (int i = 0; i < options.reps; ++i) {
      plain_seconds.push_back(seconds_of(once(plain), plain_times));
      seconds.push_back(seconds_of(once(arrays), times));
    }
    const auto speed = [&](const AttentionArrays& a, const std::vector<double>& s) {
      return a.flops(backward) / median_of(s) * 1e-9;
    };
    return Measured{speed(arrays, seconds), speed(plain, plain_seconds), median_of(seconds) * 1e3, deviation.absolute};
  };
  Measured best = measured();
  for (int again = 0; again < 2 && best.ratio() < kLeastRatio; ++again) {
    const Measured next = measured();
    if (next.ratio() > best.ratio()) best = next;
  }
  return best;
}

void print_line(const Variant& variant, Pass pass, DType dtype, const Measured& m, bool json) {
  if (!json) {
    print(fmt::format("{:<8} {:<4} {:<34} {:9.3f} ms {:8.1f} GFLOP/s {:5.0f} %{}  max error {:.1e}\n", pass_name(pass),
                      dtype_name(dtype), variant.name, m.ms, m.gflops, 100 * m.ratio(),
                      m.ratio() < kLeastRatio ? " <--" : "    ", m.max_error));
    return;
  }
  auto line = nlohmann::ordered_json::parse(line_head(variant.sizes, pass, dtype));
  line.update({{"variant", variant.name},
               {"ms", m.ms},
               {"gflops", m.gflops},
               {"plain_gflops", m.plain_gflops},
               {"ratio", m.ratio()},
               {"max_error", m.max_error}});
  print(line.dump() + "\n");
}

// The number of variants below kLeastRatio.
int run_pass(const AttentionCase& sizes, Pass pass, DType dtype, const BenchOptions& options) {
  AttentionArrays plain(sizes, dtype);
  run_and_check(plain, pass == Pass::backward, options.limit,
                fmt::format("{} {} {}", pass_name(pass), dtype_name(dtype), sizes.shape_text()));
  int low = 0;
  for (const Variant& variant : variants_of(sizes)) {
    if (variant.gradients && pass == Pass::forward) continue;
    if (variant.f16 && dtype == DType::bf16) continue;  // f16 is computed as f32
    const DType stored = variant.f16 ? DType::f16 : dtype;
    const Measured measured = measure(plain, variant, pass, stored, options);
    low += measured.ratio() < kLeastRatio;
    print_line(variant, pass, stored, measured, options.json);
  }
  return low;
}

}  // namespace

bool bench_matrix(const BenchOptions& options) {
  const AttentionCase& plain = options.shapes.front();
  if (!options.json) {
    print(
        fmt::format("{} {}, threads {}, kernels {}: GFLOP/s of the FLOPs that each mask requires, and their ratio to "
                    "the plain case\n",
                    plain.shape_text(), plain.mask_text(), num_threads(), kernel_set()));
  }
  const std::vector<Pass> both = {Pass::forward, Pass::backward};
  int low = 0;
  for (const Pass pass : options.passes.empty() ? both : options.passes)
    for (const DType dtype : options.dtypes) low += run_pass(plain, pass, dtype, options);
  if (!options.json) print(low == 0 ? "none below 60 %\n" : fmt::format("{} below 60 %\n", low));
  return low == 0;
}

}  // namespace qkv::cli
