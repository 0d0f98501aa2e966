// SPDX-License-Identifier: Apache-2.0
// Decode: new tokens with a KV cache, limited by memory bandwidth.
#include <fmt/format.h>
#include <qkv/kernels.h>
#include <qkv/kv_cache.h>
#include <qkv/threads.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench_attention.h"
#include "bench_timing.h"
#include "output.h"

namespace qkv::cli {
namespace {

constexpr std::int64_t kChunk = 1024;  // tokens per append

KvCache filled_cache(const AttentionCase& c, DType dtype, std::int64_t held, std::uint64_t seed) {
  KvCache cache(c.batch, c.n_kv_head, c.d_k, c.d_v, held, 0, dtype);
  for (std::int64_t at = 0; at < held; at += kChunk) {
    const std::int64_t count = std::min(kChunk, held - at);
    const auto part = static_cast<std::uint64_t>(at / kChunk);
    cache.append(random_tensor({c.batch, c.n_kv_head, count, c.d_k}, dtype, seed * 100000 + 2 * part),
                 random_tensor({c.batch, c.n_kv_head, count, c.d_v}, dtype, seed * 100000 + 2 * part + 1));
  }
  return cache;
}

// The view of a full cache is contiguous.
std::span<const std::byte> bytes_of(const ConstView& whole) {
  return {static_cast<const std::byte*>(whole.data),
          static_cast<std::size_t>(element_count(whole.shape)) * dtype_size(whole.dtype)};
}

// A meter that reads the memory of the caches; if they are too small it allocates its own.
ReadMeter meter_of(const std::vector<KvCache>& caches, std::int64_t own_bytes) {
  constexpr std::size_t kEnough = 1 << 20;  // bytes
  std::vector<std::span<const std::byte>> memory;
  for (const KvCache& cache : caches)
    for (const ConstView& part : {cache.k(), cache.v()}) memory.push_back(bytes_of(part));
  for (const auto& part : memory)
    if (part.size() < kEnough) return ReadMeter(own_bytes);
  return ReadMeter(std::move(memory));
}

struct Speeds {
  double ms, gb_per_s, read_gb_per_s, max_error;
};

void print_line(const AttentionCase& sizes, DType dtype, const Speeds& s, bool json) {
  if (json) {
    auto line = nlohmann::ordered_json::parse(line_head(sizes, Pass::decode, dtype));
    line.update({{"ms", s.ms},
                 {"gb_per_s", s.gb_per_s},
                 {"read_gb_per_s", s.read_gb_per_s},
                 {"fraction", s.gb_per_s / s.read_gb_per_s},
                 {"max_error", s.max_error}});
    print(line.dump() + "\n");
    return;
  }
  print(fmt::format(
      "{:<8} {:<4} {:<20} {:<17} threads {} {} {:9.3f} ms {:8.1f} GB/s {:5.1f} % of read {:.1f}  max error {:.1e}\n",
      "decode", dtype_name(dtype), sizes.shape_text(), sizes.mask_text(), num_threads(), kernel_set(), s.ms, s.gb_per_s,
      100 * s.gb_per_s / s.read_gb_per_s, s.read_gb_per_s, s.max_error));
}

}  // namespace

void bench_decode(const AttentionCase& given, DType dtype, const BenchOptions& options) {
  AttentionCase sizes = given;
  sizes.causal = true;  // the new tokens are the last in the cache
  // With a window, the cache contains only the keys it needs.
  const std::int64_t held = sizes.window > 0 ? std::min(sizes.kv_len, sizes.window + sizes.q_len - 1) : sizes.kv_len;
  const std::int64_t bytes =
      sizes.batch * sizes.n_kv_head * held * (sizes.d_k + sizes.d_v) * static_cast<std::int64_t>(dtype_size(dtype));
  std::vector<KvCache> caches;
  for (std::int64_t filled = 0; filled < options.megabytes << 20 || caches.size() < 2; filled += bytes)
    caches.push_back(filled_cache(sizes, dtype, held, caches.size() + 1));

  const Tensor q = random_tensor({sizes.batch, sizes.n_head, sizes.q_len, sizes.d_k}, dtype, 7);
  Tensor out({sizes.batch, sizes.n_head, sizes.q_len, sizes.d_v}, dtype);  // like q, with d_v
  AttentionOptions attend;
  if (sizes.window > 0) attend.window_left = sizes.window - 1;
  const AttentionResults results{.out = out.view(), .lse = {}, .probs = {}};

  AttentionOptions checked = attend;
  checked.causal = true;
  checked.alignment = Alignment::bottom_right;
  AttentionCase in_cache = sizes;
  in_cache.kv_len = held;
  Deviation deviation;
  for (const KvCache* cache : {&caches.front(), &caches.back()}) {
    cache->attend(q, attend, results);
    const Deviation one = check_forward_against_f64(in_cache, q, cache->k(), cache->v(), checked, out);
    require_right(one, dtype, options.limit, fmt::format("decode {} {}", dtype_name(dtype), sizes.shape_text()));
    deviation.absolute = std::max(deviation.absolute, one.absolute);
  }

  const auto all = [&] {
    for (const KvCache& cache : caches) cache.attend(q, attend, results);
  };
  all();
  const auto count = static_cast<double>(caches.size());
  const ReadMeter meter = meter_of(caches, options.megabytes << 20);
  std::vector<double> seconds, reads;
  for (int i = 0; i < options.reps; ++i) {
    reads.push_back(meter.sample());
    seconds.push_back(seconds_of(all) / count);
  }
  const double median = median_of(seconds);
  print_line(sizes, dtype,
             {median * 1e3, static_cast<double>(bytes) / median * 1e-9, median_of(reads), deviation.absolute},
             options.json);
}

}  // namespace qkv::cli
