// SPDX-License-Identifier: Apache-2.0
// The inner loops of attention, each separately, on one thread and in the L1 cache: the products of a tile (scores,
// accumulate, outer), its exponentials and its transposes, for every tile width of the kernels in use.
//
//   cmake -S . -B build/bench -G Ninja -DQKV_BUILD_BENCH=ON && cmake --build build/bench --target bench_kernels
//   build/bench/bench/bench_kernels --benchmark_filter='outer|scores'
//   QKV_KERNELS=avx2 build/bench/bench/bench_kernels
//
// GF/s counts two FLOPs per FMA; of_peak is the share of a register-only FMA loop in the same type (measured once, at
// the start); elements/s counts exponentials, bytes/s the bytes that a transpose reads and writes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "core/float_types.h"
#include "core/random.h"
#include "kernels/kernels.h"
#include "measure/peak_loops.h"

namespace {

using qkv::DType;
using qkv::Tensor;

constexpr int kKeys = qkv::kKeyTile;
constexpr float kUnit = 1.4426950408889634f / 8;  // log2(e) / sqrt(64)

// FLOP/s of a register-only loop on this thread, in CPU time like all times here.
double operations_per_second(DType dtype) {
  const qkv::measure::PeakLoop loop = qkv::measure::peak_loop(dtype, qkv::kernels().name);
  constexpr std::int64_t kRounds = 1 << 17;
  double best = 0;
  for (int i = 0; i < 50; ++i) {
    const std::clock_t begin = std::clock();
    loop.run(kRounds);
    const double seconds = static_cast<double>(std::max<std::clock_t>(1, std::clock() - begin)) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(kRounds * loop.flops_per_round) / seconds);
  }
  return best;
}

struct Peaks {
  double f32 = operations_per_second(DType::f32), bf16 = operations_per_second(DType::bf16);
};
const Peaks& peaks() {
  static const Peaks measured;
  return measured;
}

// Uniform numbers with variance 1.
Tensor numbers(std::int64_t rows, std::int64_t cols) {
  Tensor tensor({rows, cols});
  const qkv::Random random(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols));
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    tensor.data()[i] = static_cast<float>(random.uniform(static_cast<std::uint64_t>(i)) - 0.5) * 3.4641016f;
  return tensor;
}
Tensor bf16_numbers(std::int64_t rows, std::int64_t cols) {
  const Tensor wide = numbers(rows, cols);
  Tensor tensor(wide.shape(), DType::bf16);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<qkv::bf16>()[i] = qkv::narrow<qkv::bf16>(wide.data()[i]);
  return tensor;
}
std::uint16_t* bits(Tensor& tensor) { return reinterpret_cast<std::uint16_t*>(tensor.data<qkv::bf16>()); }

void count_operations(benchmark::State& state, double operations, double peak) {
  using benchmark::Counter;
  state.counters["GF/s"] = Counter(operations * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] = Counter(operations / peak, Counter::kIsIterationInvariantRate);
}

// Two FLOPs per keys x columns of the tile x d.
double product_operations(const qkv::TileKernels& tile, std::int64_t d) {
  return 2.0 * kKeys * tile.width * static_cast<double>(d);
}

// All arrays of a tile's kernels.
struct Arrays {
  explicit Arrays(int width, std::int64_t d)
      : k(numbers(kKeys, d)),
        qt(numbers(d, width)),
        s(numbers(kKeys, width)),
        p(numbers(kKeys, width)),
        ot(numbers(d, width)),
        x(numbers(width, d)),
        c(numbers(kKeys, d)),
        m(numbers(1, width)),
        l(numbers(1, width)),
        k16(bf16_numbers(kKeys, d)),
        qt16(bf16_numbers(d, width)),
        p16(bf16_numbers(kKeys, width)),
        x16(bf16_numbers(width + 1, d)) {}
  Tensor k, qt, s, p, ot, x, c, m, l;  // f32: [keys, d], [d, width], [keys, width] x 2, [d, width], [width, d], ...
  Tensor k16, qt16, p16, x16;          // bf16, the same element counts; in pairs if the kernel uses pairs
};

using Body = void (*)(benchmark::State&, const qkv::TileKernels&, std::int64_t d);

void scores(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.scores(a.k.data(), d, a.qt.data(), d, kKeys, t.width, 0, t.width / t.lanes, a.s.data(), a.m.data());
    benchmark::ClobberMemory();
  }
  count_operations(state, product_operations(t, d), peaks().f32);
}

void accumulate(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.accumulate(a.p.data(), a.k.data(), d, d, kKeys, t.width, 0, t.width / t.lanes, true, a.ot.data());
    benchmark::ClobberMemory();
  }
  count_operations(state, product_operations(t, d), peaks().f32);
}

void outer(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.outer(a.p.data(), a.x.data(), d, d, kKeys, t.width, a.c.data(), d);
    benchmark::ClobberMemory();
  }
  count_operations(state, product_operations(t, d), peaks().f32);
}

// The scores are restored each time, so the time includes a copy within L1.
void exponentials(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    std::copy_n(a.p.data(), a.p.size(), a.s.data());
    t.exponentials(kUnit, kKeys, 0, t.width / t.lanes, a.m.data(), a.l.data(), a.s.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kKeys * t.width);
}

void transpose_in(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.transpose_in(a.x.data(), d, t.width, d, a.qt.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * 4 * t.width * d);
}

void transpose_out(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.transpose_out(a.ot.data(), t.width, d, a.l.data(), a.x.data(), d);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * 4 * t.width * d);
}

void scores_bf16(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.bf16->scores(bits(a.k16), d, bits(a.qt16), d / 2, kKeys, t.width, 0, t.width / t.lanes, a.s.data(), a.m.data());
    benchmark::ClobberMemory();
  }
  count_operations(state, product_operations(t, d), peaks().bf16);
}

void accumulate_bf16(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.bf16->accumulate(bits(a.p16), bits(a.k16), d, d, kKeys / 2, t.width, 0, t.width / t.lanes, true, a.ot.data());
    benchmark::ClobberMemory();
  }
  count_operations(state, product_operations(t, d), peaks().bf16);
}

void outer_bf16(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.bf16->outer(bits(a.p16), bits(a.x16), d, d, kKeys, t.width / 2, a.c.data(), d);
    benchmark::ClobberMemory();
  }
  count_operations(state, product_operations(t, d), peaks().bf16);
}

void exponentials_bf16(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.bf16->exponentials(kUnit, kKeys, 0, t.width / t.lanes, a.m.data(), a.l.data(), a.s.data(), bits(a.p16));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kKeys * t.width);
}

void transpose_bf16(benchmark::State& state, const qkv::TileKernels& t, std::int64_t d) {
  Arrays a(t.width, d);
  for ([[maybe_unused]] auto _ : state) {
    t.bf16->transpose_pairs(bits(a.x16), d, t.width, d / 2, bits(a.qt16));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * 2 * t.width * d);
}

void interleave_bf16(benchmark::State& state, std::int64_t d) {
  Tensor x = bf16_numbers(kKeys, d), pairs = bf16_numbers(kKeys, d);
  for ([[maybe_unused]] auto _ : state) {
    qkv::kernels().interleave(bits(x), d, kKeys, d, d, bits(pairs));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * 2 * kKeys * d);
}

void add(const char* kernel, const char* dtype, Body body, const qkv::TileKernels& tile, std::int64_t d) {
  const std::string name = std::string(qkv::kernels().name) + "/" + kernel + "/" + dtype +
                           "/width:" + std::to_string(tile.width) + "/d:" + std::to_string(d);
  benchmark::RegisterBenchmark(name.c_str(), body, tile, d);
}

void add_all() {
  const qkv::KernelTable& table = qkv::kernels();
  for (const std::int64_t d : {64, 128}) {
    for (int i = 0; i < table.tile_count; ++i) {
      const qkv::TileKernels& tile = table.tiles[i];
      add("scores", "f32", scores, tile, d);
      add("accumulate", "f32", accumulate, tile, d);
      add("outer", "f32", outer, tile, d);
      add("exponentials", "f32", exponentials, tile, d);
      add("transpose_in", "f32", transpose_in, tile, d);
      add("transpose_out", "f32", transpose_out, tile, d);
      if (!tile.bf16) continue;
      add("scores", "bf16", scores_bf16, tile, d);
      add("accumulate", "bf16", accumulate_bf16, tile, d);
      if (tile.width % 2 == 0) add("outer", "bf16", outer_bf16, tile, d);
      add("exponentials", "bf16", exponentials_bf16, tile, d);
      add("transpose_pairs", "bf16", transpose_bf16, tile, d);
    }
    if (table.interleave)
      benchmark::RegisterBenchmark((std::string(table.name) + "/interleave/bf16/d:" + std::to_string(d)).c_str(),
                                   interleave_bf16, d);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  (void)peaks();
  add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
