// SPDX-License-Identifier: Apache-2.0
// qkv bench attention: options, the list of what is measured, and the lines of forward and backward passes.
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
Shapes are BxHxTxD: batch, query heads, queries, head size; several with commas between them. After a colon:
  :kv=N  key heads (default: as many as query heads)     :k=LEN  keys (default: as many as queries)
  :dv=N  size of the values (default: D)                 :window=N, :causal, :full  for this shape alone
A causal mask ends with the last key (bottom-right). A window of N lets a query read N keys: itself and those before it
(and as many after it without --causal). Passes are forward, backward (dq, dk and dv, from out and lse) and decode: T
new tokens against a KV cache of k tokens. Without --pass, shapes whose keys are 16 times their queries or more are
decoded, others run forward and backward. Without --shapes: the table of figures that this project holds itself to.

A line has the median of --reps runs, and
  GF/s       the operations that the mask needs in that time: 4 x D for each pair of query and key that may be read,
             2.5 x that backward. What is computed beside that does not count.
  of peak    GF/s as a part of the peak: a loop of multiply-adds over registers in the same type with the same threads,
             measured between the runs, the median of as many samples. Types without products of their own (f16
             always, bf16 without AVX512_BF16) are multiplied as f32.
  GB/s       of decoding: the bytes of keys and values that are read in that time, as a part of what a loop that only
             reads the same memory reaches. Caches take turns, 512 MB of them (--memory-mb), so that no processor cache
             helps.
  best       the shortest run, and its part of the fastest peak: on a busy machine nearer to the truth than the medians.
  max error  the largest difference from the reference path in f64, on the same inputs. A result whose difference is
             more than rounding explains (--limit) is an error, and is not timed.
  of share   with a window: the time, as a part of the same pass without it, over the window's part of the pairs.

--matrix runs every option and every head size from 16 to 256 on one shape (2x4x1024x64 unless --shapes has another)
against the plain case, measurement by measurement in turn, and prints the ratio of their GF/s: what an option costs
beside the pairs it allows. Ratios below 60 % are measured again, twice, and marked if they stay there; --check makes
them exit status 1.

Examples
  qkv bench attention
  qkv bench attention --shapes 1x12x1024x64,1x8x2048x128:kv=2 --pass forward --dtype bf16 --threads 1
  qkv bench attention --shapes 4x12x1x64:k=16384 --json
  qkv bench attention --shapes 1x12x8192x64 --window 256
  qkv bench attention --matrix --check)";

Pass pass_of(const std::string& name) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::decode})
    if (name == pass_name(pass)) return pass;
  throw UsageError("--pass takes forward, backward and decode; found '" + name + "'");
}

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == dtype_name(dtype)) return dtype;
  throw UsageError("--dtype takes f32, bf16 and f16; found '" + name + "'");
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
    if (options.shapes.size() != 1) throw UsageError("--matrix takes one shape");
    for (const Pass pass : options.passes)
      if (pass == Pass::decode) throw UsageError("--matrix runs forward and backward");
  } else if (options.check) {
    throw UsageError("--check belongs to --matrix");
  } else if (!raw.shapes && (raw.no_causal || raw.causal || raw.window > 0)) {
    throw UsageError("--causal, --no-causal and --window need --shapes; the table of figures has its own");
  }
  if (!options.matrix) check_decoding(options);
  return options;
}

struct Item {
  const char* shape;
  std::vector<Pass> passes;
};

// The table of figures.
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
  std::string text = fmt::format("{} threads, kernels {}; by the clock", num_threads(), kernels);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (!std::count(options.dtypes.begin(), options.dtypes.end(), dtype)) continue;
    const TheoreticalPeak peak = theoretical_peak(dtype, kernels);
    text += fmt::format(" {} {:.1f} GF/s ({} x {:.2f} GHz x {})", dtype_name(dtype), peak.gflops, num_threads(),
                        peak.ghz, peak.operations_per_cycle);
  }
  print(text + "\n");
}

void run(const RawOptions& raw) {
  require_cpu(raw.device, "attention");
  const BenchOptions options = settled(raw);
  note_other_load();
  (void)kernel_set();  // an unknown QKV_KERNELS is told before anything is measured
  if (!options.json) print_clock(options);
  if (!options.matrix) return run_all(options);
  if (!bench_matrix(options) && options.check)
    throw std::runtime_error("[bench] an option or head size is below 60 % of the plain case");
}

// The time of a pass without its window, and the part of its pairs that the window leaves.
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
  double flops;                        // of a pass
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
      "{:<8} {:<4} {:<20} {:<17} {} threads {} {:9.3f} ms {:8.1f} GF/s {:5.1f} % of peak {:.1f}  max error {:.1e}  "
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
  command->add_flag("--no-causal", raw->no_causal, "No mask: every query reads every key")->excludes(causal);
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
  add_number(*command, "--memory-mb", raw->bench.megabytes, "Memory that decoding cycles through, MiB [512]")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command->add_flag("--matrix", raw->bench.matrix, "Every option and head size vs. the plain case");
  command->add_flag("--check", raw->bench.check, "With --matrix: exit status 1 if a case is below 60 %");
  command->add_flag("--json", raw->bench.json, "One JSON object per line");
  command->footer(kFooter);
  command->callback([raw] { run(*raw); });
}

}  // namespace qkv::cli
