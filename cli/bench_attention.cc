// SPDX-License-Identifier: Apache-2.0
// qkv bench attention: options, cases, and the output of forward and backward passes.
#include "bench_attention.h"

#include <fmt/format.h>
#include <qkv/kernels.h>
#include <qkv/threads.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "bench.h"
#include "bench_timing.h"
#include "common_options.h"

namespace qkv::cli {
namespace {

struct RawOptions {
  std::optional<std::string> shapes, passes;
  std::string dtypes = "f32,bf16";
  std::string device;
  bool no_causal = false, causal = false;
  std::int64_t window = 0;
  BenchOptions bench;
};

constexpr const char* kFooter = R"(
Shapes are BxHxTxD: batch, query heads, queries, head size; separate several with commas. After a colon:
  :kv=N  key heads (default: query heads)      :k=LEN  keys (default: queries)
  :dv=N  value size (default: D)               :window=N, :causal, :full  for this shape only
The causal mask is bottom-right. With a window of N, a query attends to N keys: itself and those before it (and as many
after it without --causal). Passes are forward, backward (dq, dk and dv, from out and lse) and decode: T new tokens with
a KV cache of k tokens. Without --pass, shapes with at least 16 times as many keys as queries are decoded, others run
forward and backward. Without --shapes: the standard table of docs/performance.md.

Each line has the median of --reps runs, and
  GFLOP/s    FLOPs that the mask requires per second: 4 x D per visible query-key pair, 2.5 x that backward. Extra work
             does not count.
  of peak    share of the peak: a register-only FMA loop in the same type with the same threads, measured between the
             runs (median). Types without FMA instructions (f16 always, bf16 without AVX512_BF16) are computed as f32.
  GB/s       decode: bytes of keys and values read per second, and their share of the bandwidth of a loop that only
             reads the same memory. It cycles through 512 MB of KV caches (--memory-mb) to defeat CPU caches.
  best       the fastest run, and its share of the highest peak: more reliable than the median on a busy machine.
  max error  largest difference from the reference path in f64 on the same inputs. A difference above the rounding
             error (--limit) is an error, and the case is not timed.
  of share   with a window: time relative to the same pass without it, divided by the window's share of the pairs.

--matrix compares every option and every head size from 16 to 256 on one shape (2x4x1024x64, or --shapes) with the plain
case, in alternating runs, and prints the ratio of their GFLOP/s: the cost of an option per visible pair. Ratios below
60 % are measured twice more, and marked if they stay below; with --check they give exit status 1.

Examples
  qkv bench attention
  qkv bench attention --shapes 1x12x1024x64,1x8x2048x128:kv=2 --pass forward --dtype bf16 --threads 1
  qkv bench attention --shapes 4x12x1x64:k=16384 --json
  qkv bench attention --shapes 1x12x8192x64 --window 256
  qkv bench attention --matrix --check)";

Pass pass_of(const std::string& name) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::decode})
    if (name == pass_name(pass)) return pass;
  throw UsageError("--pass expected forward, backward or decode; found '" + name + "'");
}

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == dtype_name(dtype)) return dtype;
  throw UsageError("--dtype expected f32, bf16 or f16; found '" + name + "'");
}

std::vector<Pass> passes_of(const AttentionCase& sizes, const BenchOptions& options) {
  if (!options.passes.empty()) return options.passes;
  if (sizes.kv_len >= 16 * sizes.q_len) return {Pass::decode};
  return {Pass::forward, Pass::backward};
}

void check_decoding(const BenchOptions& options) {
  for (const AttentionCase& sizes : options.shapes)
    for (const Pass pass : passes_of(sizes, options))
      if (pass == Pass::decode && sizes.kv_len < sizes.q_len)
        throw UsageError("decode needs at least as many keys as queries; found " + sizes.shape_text());
}

BenchOptions settled(const RawOptions& raw) {
  BenchOptions options = raw.bench;
  AttentionCase defaults;
  defaults.causal = options.matrix ? raw.causal : !raw.no_causal;
  defaults.window = raw.window;
  if (raw.shapes)
    for (const std::string& shape : split(*raw.shapes)) options.shapes.push_back(parse_shape(shape, defaults));
  if (raw.passes)
    for (const std::string& pass : split(*raw.passes)) options.passes.push_back(pass_of(pass));
  options.dtypes.clear();
  for (const std::string& dtype : split(raw.dtypes)) options.dtypes.push_back(dtype_of_name(dtype));
  if (options.matrix) {
    if (options.shapes.empty()) options.shapes.push_back(parse_shape("2x4x1024x64", defaults));
    if (options.shapes.size() != 1) throw UsageError("--matrix expected one shape");
    for (const Pass pass : options.passes)
      if (pass == Pass::decode) throw UsageError("--matrix supports only forward and backward");
  } else if (options.check) {
    throw UsageError("--check needs --matrix");
  } else if (!raw.shapes && (raw.no_causal || raw.causal || raw.window > 0)) {
    throw UsageError("--causal, --no-causal and --window need --shapes; the standard table sets its own");
  }
  if (!options.matrix) check_decoding(options);
  return options;
}

struct Item {
  const char* shape;
  std::vector<Pass> passes;
};

// The standard table.
const std::vector<Item>& figures() {
  static const std::vector<Item> items = {
      {"1x12x1024x64", {Pass::forward, Pass::backward}},
      {"1x12x4096x64", {Pass::forward, Pass::backward}},
      {"4x12x1024x64:full", {Pass::forward}},
      {"1x8x2048x128:kv=2", {Pass::forward}},
      {"1x12x8192x64:window=256", {Pass::forward}},
      {"1x12x1x64:k=16384", {Pass::decode}},
      {"4x12x1x64:k=16384", {Pass::decode}},
  };
  return items;
}

void run_all(const BenchOptions& options) {
  Peaks peaks;
  const auto run = [&](const AttentionCase& sizes, const std::vector<Pass>& passes) {
    for (const Pass pass : passes)
      for (const DType dtype : options.dtypes) {
        if (pass == Pass::decode) {
          bench_decode(sizes, dtype, options);
        } else {
          bench_pass(sizes, pass, dtype, options, peaks);
        }
      }
  };
  for (const AttentionCase& sizes : options.shapes) run(sizes, passes_of(sizes, options));
  if (!options.shapes.empty()) return;
  for (const Item& item : figures()) {
    std::vector<Pass> passes;
    for (const Pass pass : item.passes)
      if (options.passes.empty() || std::count(options.passes.begin(), options.passes.end(), pass))
        passes.push_back(pass);
    run(parse_shape(item.shape, {}), passes);
  }
}

void print_clock(const BenchOptions& options) {
  const std::string kernels(kernel_set());
  std::string text = fmt::format("threads: {}, kernels: {}; theoretical peak", num_threads(), kernels);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (!std::count(options.dtypes.begin(), options.dtypes.end(), dtype)) continue;
    const TheoreticalPeak peak = theoretical_peak(dtype, kernels);
    text += fmt::format(" {} {:.1f} GFLOP/s ({} x {:.2f} GHz x {})", dtype_name(dtype), peak.gflops, num_threads(),
                        peak.ghz, peak.operations_per_cycle);
  }
  print(text + "\n");
}

void run(const RawOptions& raw) {
  require_cpu(raw.device, "attention");
  const BenchOptions options = settled(raw);
  note_other_load();
  (void)kernel_set();  // reports an unknown QKV_KERNELS before any measurement
  if (!options.json) print_clock(options);
  if (!options.matrix) return run_all(options);
  if (!bench_matrix(options) && options.check)
    throw std::runtime_error("[bench] an option or head size is below 60 % of the plain case");
}

// The time of a pass without its window, and the window's share of the pairs.
struct Twin {
  std::unique_ptr<AttentionArrays> arrays;
  double share = 0;
};

Twin unwindowed(const AttentionArrays& arrays, DType dtype) {
  Twin twin;
  if (arrays.sizes.window == 0) return twin;
  AttentionCase sizes = arrays.sizes;
  sizes.window = 0;
  twin.arrays = std::make_unique<AttentionArrays>(sizes, dtype);
  twin.share = arrays.pairs() / twin.arrays->pairs();
  return twin;
}

struct Speeds {
  double flops;                        // per pass
  std::vector<double> seconds, peaks;  // [reps]
  double max_error, of_share;          // of_share 0: no window

  double ms() const { return median_of(seconds) * 1e3; }
  double gflops() const { return flops / median_of(seconds) * 1e-9; }
  double peak() const { return median_of(peaks); }
  double best_ms() const { return *std::min_element(seconds.begin(), seconds.end()) * 1e3; }
  double best_fraction() const { return flops / best_ms() * 1e-6 / *std::max_element(peaks.begin(), peaks.end()); }
};

void print_line(const AttentionCase& sizes, Pass pass, DType dtype, const Speeds& s, bool json) {
  if (json) {
    auto line = nlohmann::ordered_json::parse(line_head(sizes, pass, dtype));
    line.update({{"ms", s.ms()},
                 {"gflops", s.gflops()},
                 {"peak_gflops", s.peak()},
                 {"fraction", s.gflops() / s.peak()},
                 {"max_error", s.max_error},
                 {"best_ms", s.best_ms()},
                 {"best_fraction", s.best_fraction()}});
    if (s.of_share > 0) line["time_over_share"] = s.of_share;
    print(line.dump() + "\n");
    return;
  }
  std::string text = fmt::format(
      "{:<8} {:<4} {:<20} {:<17} threads {} {} {:9.3f} ms {:8.1f} GFLOP/s {:5.1f} % of peak {:.1f}  max error {:.1e}  "
      "best "
      "{:.3f} ms {:.1f} %",
      pass_name(pass), dtype_name(dtype), sizes.shape_text(), sizes.mask_text(), num_threads(), kernel_set(), s.ms(),
      s.gflops(), 100 * s.gflops() / s.peak(), s.peak(), s.max_error, s.best_ms(), 100 * s.best_fraction());
  if (s.of_share > 0) text += fmt::format("  {:.2f} of share", s.of_share);
  print(text + "\n");
}

}  // namespace

const char* pass_name(Pass pass) {
  return pass == Pass::forward ? "forward" : pass == Pass::backward ? "backward" : "decode";
}

const PeakMeter& Peaks::peak(DType dtype) {
  const DType multiplied = dtype == DType::bf16 ? dtype : DType::f32;
  return peaks_.try_emplace(multiplied, multiplied, kernel_set()).first->second;
}

std::string line_head(const AttentionCase& sizes, Pass pass, DType dtype) {
  nlohmann::ordered_json line = {{"pass", pass_name(pass)}, {"dtype", dtype_name(dtype)},   {"batch", sizes.batch},
                                 {"n_head", sizes.n_head},  {"n_kv_head", sizes.n_kv_head}, {"q_len", sizes.q_len},
                                 {"kv_len", sizes.kv_len},  {"head_dim", sizes.d_k},        {"causal", sizes.causal},
                                 {"window", sizes.window},  {"kernels", kernel_set()},      {"threads", num_threads()}};
  if (sizes.d_v != sizes.d_k) line["v_head_dim"] = sizes.d_v;
  return line.dump();
}

void bench_pass(const AttentionCase& sizes, Pass pass, DType dtype, const BenchOptions& options, Peaks& peaks) {
  const bool backward = pass == Pass::backward;
  AttentionArrays arrays(sizes, dtype);
  const Deviation deviation = run_and_check(
      arrays, backward, options.limit,
      fmt::format("{} {} {} {}", pass_name(pass), dtype_name(dtype), sizes.shape_text(), sizes.mask_text()));
  const auto work = [&] { arrays.run(backward); };
  const int times = times_in_a_row(work);
  const PeakMeter& meter = peaks.peak(dtype);
  const Twin twin = unwindowed(arrays, dtype);
  if (twin.arrays) {
    twin.arrays->forward();
    if (backward) twin.arrays->backward();
  }
  Speeds speeds{arrays.flops(backward), {}, {}, deviation.absolute, 0};
  std::vector<double> twin_seconds;
  for (int i = 0; i < options.reps; ++i) {
    speeds.peaks.push_back(meter.sample());
    speeds.seconds.push_back(seconds_of(work, times));
    if (twin.arrays) twin_seconds.push_back(seconds_of([&] { twin.arrays->run(backward); }));
  }
  if (twin.arrays) speeds.of_share = median_of(speeds.seconds) / median_of(twin_seconds) / twin.share;
  print_line(sizes, pass, dtype, speeds, options.json);
}

void add_bench_attention(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("attention", "Attention speed vs. hardware limits");
  const auto raw = std::make_shared<RawOptions>();
  command->add_option("--shapes", raw->shapes, "Shapes to measure")->type_name("SHAPE[,SHAPE...]");
  command->add_option("--pass", raw->passes, "forward, backward, decode")->type_name("PASS[,PASS...]");
  command->add_option("--dtype", raw->dtypes, "f32, bf16, f16 (default f32,bf16)")->type_name("TYPE[,TYPE...]");
  CLI::Option* causal = command->add_flag("--causal", raw->causal, "Causal mask [yes, except with --matrix]");
  command->add_flag("--no-causal", raw->no_causal, "No mask: full attention")->excludes(causal);
  add_number(*command, "--window", raw->window, "Attention window: keys per query, itself included; 0 = all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->type_name("N");
  add_device_option(*command, raw->device);
  add_threads_option(*command);
  add_number(*command, "--reps", raw->bench.reps, "Runs per case, median [7]")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  add_number(*command, "--limit", raw->bench.limit,
             "Largest relative difference from f64 [2e-5 f32, 4e-3 f16, 3e-2 bf16]")
      ->check(at_least(0))
      ->type_name("X");
  add_number(*command, "--memory-mb", raw->bench.megabytes, "Memory that decode cycles through, MiB [512]")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command->add_flag("--matrix", raw->bench.matrix, "Every option and head size vs. the plain case");
  command->add_flag("--check", raw->bench.check, "With --matrix: exit status 1 if a case is below 60 %");
  command->add_flag("--json", raw->bench.json, "One JSON object per line");
  command->footer(kFooter);
  command->callback([raw] { run(*raw); });
}

}  // namespace qkv::cli
