// SPDX-License-Identifier: Apache-2.0
#include "qkv/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/elements.h"
#include "core/block_types.h"
#include "core/finite.h"
#include "core/number_text.h"
#include "core/parallel.h"
#include "kernels/row_kernels.h"
#include "qkv/attention_members.h"
#include "qkv/error.h"

namespace qkv {
namespace {

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[kv_cache] " + expected + "; found " + found);
}

// The first columns of rows first ... first + count of [batch, heads, rows, d].
template <class V>
V rows_of(V view, std::int64_t first, std::int64_t count, std::int64_t columns) noexcept {
  const std::int64_t offset = row_bytes(view.dtype, first * view.strides[2]);
  using Byte = std::conditional_t<std::is_same_v<V, View>, char, const char>;
  view.data = static_cast<Byte*>(view.data) + offset;
  view.shape[2] = count;
  view.shape[3] = columns;
  return view;
}

// d rounded up to whole blocks of the type.
std::int64_t in_blocks(std::int64_t d, DType dtype) noexcept {
  const std::int64_t block = block_size(dtype).elements;
  return (d + block - 1) / block * block;
}

// Bytes per row of a cache tensor [batch, heads, allocated, d].
std::size_t bytes_of_row(const Tensor& held) noexcept {
  return static_cast<std::size_t>(row_bytes(held.dtype(), held.shape()[3]));
}

// Copies one row of d elements, `step` apart, rounded to the type of `to`.
void copy_row(const ConstView& from, std::int64_t source, std::int64_t step, const View& to, std::int64_t target,
              std::int64_t d) noexcept {
  const auto size = static_cast<std::int64_t>(dtype_size(to.dtype));
  if (from.dtype == to.dtype && step == 1) {
    std::memcpy(static_cast<char*>(to.data) + target * size, static_cast<const char*>(from.data) + source * size,
                static_cast<std::size_t>(d * size));
  } else if (from.dtype == DType::f32 && to.dtype == DType::bf16 && step == 1) {
    row_kernels().half.from_f32(d, static_cast<const float*>(from.data) + source, static_cast<bf16*>(to.data) + target);
  } else if (from.dtype == DType::bf16 && to.dtype == DType::f32 && step == 1) {
    row_kernels().half.to_f32(d, static_cast<const bf16*>(from.data) + source, static_cast<float*>(to.data) + target);
  } else {
    for (std::int64_t c = 0; c < d; ++c) {
      if (to.dtype == DType::f64)
        store_element(to, target + c, load_element<double>(from, source + c * step));
      else
        store_element(to, target + c, load_element<float>(from, source + c * step));
    }
  }
}

// Calls copy(offset in from, offset in to) for each row of [batch, heads, rows, d].
template <class Copy>
void for_rows(const ConstView& from, const ConstView& to, const Copy& copy) {
  constexpr std::int64_t kRowsAtOnce = 64;
  const Dims &f = from.strides, &t = to.strides;
  const std::int64_t rows = from.shape[2];
  for (std::int64_t n = 0; n < from.shape[0] * from.shape[1]; ++n) {
    const std::int64_t b = n / from.shape[1], h = n % from.shape[1];
    parallel_ranges(rows, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) copy(b * f[0] + h * f[1] + i * f[2], b * t[0] + h * t[1] + i * t[2]);
    });
  }
}

// Copies from [batch, heads, rows, d], rounded to the type of `to`, which has the same shape and contiguous rows.
void copy_rows(const ConstView& from, const View& to) {
  for_rows(from, to, [&](std::int64_t source, std::int64_t target) {
    copy_row(from, source, from.strides[3], to, target, from.shape[3]);
  });
}

// The same, to rows of blocks.
void quantise_rows(const ConstView& from, const View& to) {
  const std::int64_t d = from.shape[3], padded = to.shape[3];
  for_rows(from, to, [&](std::int64_t source, std::int64_t target) {
    thread_local std::vector<float> row;  // [padded]
    row.assign(static_cast<std::size_t>(padded), 0.0f);
    copy_row(from, source, from.strides[3], view(row.data(), Dims{padded}), 0, d);
    quantise_row(to.dtype, row.data(), padded, static_cast<std::byte*>(to.data) + row_bytes(to.dtype, target));
  });
}

// Moves rows first ... first + count of each head to the start of the head.
void move_to_front(Tensor& tensor, std::int64_t first, std::int64_t count) noexcept {
  const Dims& shape = tensor.shape();  // [batch, heads, allocated, d]
  const std::size_t row = bytes_of_row(tensor);
  const std::size_t head = static_cast<std::size_t>(shape[2]) * row;
  for (std::int64_t n = 0; n < shape[0] * shape[1]; ++n) {
    char* begin = static_cast<char*>(tensor.raw()) + static_cast<std::size_t>(n) * head;
    std::memmove(begin, begin + static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row);
  }
}

constexpr std::int64_t kFirstCapacity = 256;  // initial allocation of a cache, in tokens

// A tensor with `allocated` rows per head that begins with rows first ... first + count of `from`.
Tensor with_capacity(const Tensor& from, std::int64_t first, std::int64_t count, std::int64_t allocated) {
  const Dims& shape = from.shape();  // [batch, heads, rows before, d]
  Tensor to({shape[0], shape[1], allocated, shape[3]}, from.dtype());
  const std::size_t row = bytes_of_row(from);
  for (std::int64_t n = 0; n < shape[0] * shape[1]; ++n)
    std::memcpy(static_cast<char*>(to.raw()) + static_cast<std::size_t>(n * allocated) * row,
                static_cast<const char*>(from.raw()) + static_cast<std::size_t>(n * shape[2] + first) * row,
                static_cast<std::size_t>(count) * row);
  return to;
}

void check_size(const char* name, std::int64_t size, std::int64_t least) {
  if (size < least) fail(std::string(name) + " must be at least " + std::to_string(least), std::to_string(size));
}

void check_new(const char* name, const ConstView& view, const Tensor& held, std::int64_t new_len, std::int64_t d) {
  const Dims wanted{held.shape()[0], held.shape()[1], new_len, d};
  if (!(view.shape == wanted))
    fail(std::string(name) + " must have the shape " + to_string(wanted), to_string(view.shape));
  if (!is_floating(view.dtype)) fail(std::string(name) + " must be floating", std::string(dtype_name(view.dtype)));
  if (!view && element_count(wanted) > 0) fail(std::string(name) + " must be given", "a view without data");
}

// Whether an option is unset.
template <class T>
bool same(const T& given, const T& unset) {
  return given == unset;
}
bool same(const ConstView& given, const ConstView&) { return !given; }
bool same(const AttentionDropout& given, const AttentionDropout& unset) { return given.p == unset.p; }

// Numbers of at least this size become infinity in a cache of the type: halfway between the largest number and the next
// power of two; of a q8_0 block the f16 scale, a 127th of the largest number, is rounded so.
float overflow_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return 65520.0f;
    case DType::q8_0:
      return 127 * 65520.0f;
    case DType::bf16:
      return 0x1.ffp+127f;
    default:
      return std::numeric_limits<float>::infinity();
  }
}

// Throws if a finite number of the rows would become infinity. NaN and infinity themselves are kept.
void check_range(const char* name, const ConstView& rows, DType dtype) {
  const float limit = overflow_of(dtype);
  if (rows.dtype == dtype || std::isinf(limit)) return;
  const Dims &s = rows.shape, &step = rows.strides;
  for (std::int64_t n = 0; n < s[0] * s[1] * s[2]; ++n) {
    const std::int64_t row = n / (s[1] * s[2]) * step[0] + n / s[2] % s[1] * step[1] + n % s[2] * step[2];
    thread_local std::vector<float> values;  // [d]
    values.resize(static_cast<std::size_t>(s[3]));
    widen_elements(rows.dtype, rows.data, row, step[3], s[3], values.data());
    float largest = 0;
    for (const float x : values)
      largest = std::abs(x) < std::numeric_limits<float>::infinity() ? std::max(largest, std::abs(x)) : largest;
    if (largest < limit) continue;
    const std::string type(dtype_name(dtype));
    throw NonFiniteError("[kv_cache] expected " + std::string(name) + " below " + number_text(limit) +
                         ", which a cache of type " + type + " can hold; found " + number_text(largest) +
                         " (the cache types f32 and bf16 hold more)");
  }
}

// Whether all of `count` contiguous numbers are finite; of blocks, their scales.
bool all_finite(DType dtype, const char* data, std::int64_t count) {
  if (!is_blocks(dtype)) return first_non_finite(ConstView{data, dtype, Dims{count}, Dims{1}}) < 0;
  const BlockSize block = block_size(dtype);
  for (const char* end = data + row_bytes(dtype, count); data < end; data += block.bytes) {
    f16 scale;
    std::memcpy(&scale, data, sizeof scale);
    if ((scale.bits & 0x7c00u) == 0x7c00u) return false;
  }
  return true;
}

void check_options(const AttentionOptions& options) {
  constexpr std::string_view kPossible[] = {"scale", "softcap", "window_left", "alibi_slopes", "sinks"};
  const auto refuse = [](const char* name) {
    fail("only scale, softcap, window_left, alibi_slopes, sinks and path as options", name);
  };
  const AttentionOptions unset;
  for_each_option(
      [&](const OptionText& option, const auto& given, const auto& none) {
        const bool possible = std::find(std::begin(kPossible), std::end(kPossible), option.name) != std::end(kPossible);
        if (!possible && !same(given, none)) refuse(option.name);
      },
      options, unset);
  if (options.first_key != 0) refuse("first_key");
}

}  // namespace

KvCache::KvCache(std::int64_t batch, std::int64_t n_kv_head, std::int64_t d_k, std::int64_t d_v, std::int64_t capacity,
                 std::int64_t window, DType dtype)
    : capacity_(capacity), window_(window), d_k_(d_k), d_v_(d_v) {
  check_size("batch", batch, 0);
  check_size("n_kv_head", n_kv_head, 1);
  check_size("d_k", d_k, 1);
  check_size("d_v", d_v, 1);
  check_size("capacity", capacity, 1);
  check_size("window", window, 0);
  if (window > capacity)
    fail("window must be at most the capacity (" + std::to_string(capacity) + ")", std::to_string(window));
  if (!is_floating(dtype) && dtype != DType::q8_0)
    fail("the type must be f32, bf16, f16, q8_0 or f64", std::string(dtype_name(dtype)));
  // A rolling cache is allocated some extra space so that it rarely moves its contents; other caches grow as they fill.
  const std::int64_t allocated =
      window == 0 ? std::min(capacity, kFirstCapacity) : capacity + std::max<std::int64_t>(64, capacity / 4);
  k_ = Tensor({batch, n_kv_head, allocated, in_blocks(d_k, dtype)}, dtype);
  v_ = Tensor({batch, n_kv_head, allocated, in_blocks(d_v, dtype)}, dtype);
}

void KvCache::append(const ConstView& k, const ConstView& v) {
  const std::int64_t count = k.rank() == 4 ? k.shape[2] : 0;
  check_new("k", k, k_, count, d_k_);
  check_new("v", v, v_, count, d_v_);
  if (count == 0) return;
  // When full, keep what the oldest new token's window still reaches, and the new tokens.
  std::int64_t kept = size_, skipped = 0;
  if (count > capacity_ - size_) {
    if (window_ == 0) {
      fail("space for " + std::to_string(count) + " more tokens",
           std::to_string(size_) + " cached with a capacity of " + std::to_string(capacity_));
    }
    skipped = std::max<std::int64_t>(0, count - capacity_);
    kept = std::min({size_, window_ - 1, capacity_ - (count - skipped)});
  }
  const std::int64_t added = count - skipped;
  check_range("keys", rows_of(k, skipped, added, d_k_), k_.dtype());
  check_range("values", rows_of(v, skipped, added, d_v_), v_.dtype());
  first_key_ += size_ - kept + skipped;
  if (kept < size_ || skipped > 0) first_query_ = first_key_ + window_ - 1;
  offset_ += size_ - kept;
  size_ = kept;
  const std::int64_t allocated = k_.shape()[2];
  if (size_ + added > allocated) {
    grow(std::min(capacity_, std::max(2 * allocated, size_ + added)));
  } else if (offset_ + size_ + added > allocated) {
    move_to_front(k_, offset_, size_);
    move_to_front(v_, offset_, size_);
    offset_ = 0;
  }
  const auto copy = is_blocks(k_.dtype()) ? quantise_rows : copy_rows;
  copy(rows_of(k, skipped, added, d_k_), rows_of(k_.view(), offset_ + size_, added, k_.shape()[3]));
  copy(rows_of(v, skipped, added, d_v_), rows_of(v_.view(), offset_ + size_, added, v_.shape()[3]));
  size_ += added;
}

// Reallocates to that many rows, with the cached rows moved to the front. Changes nothing if allocation fails.
void KvCache::grow(std::int64_t allocated) {
  Tensor k = with_capacity(k_, offset_, size_, allocated), v = with_capacity(v_, offset_, size_, allocated);
  k_ = std::move(k);
  v_ = std::move(v);
  offset_ = 0;
}

KvCache KvCache::prefix(std::int64_t size) const {
  if (size < 0 || size > size_ || first_key_ > 0)
    fail("a prefix of 0 to " + std::to_string(first_key_ > 0 ? 0 : size_) + " tokens", std::to_string(size));
  const std::int64_t allocated = window_ > 0 ? k_.shape()[2] : std::max(size, std::min(capacity_, kFirstCapacity));
  KvCache copy;
  copy.capacity_ = capacity_;
  copy.window_ = window_;
  copy.size_ = size;
  copy.d_k_ = d_k_;
  copy.d_v_ = d_v_;
  copy.k_ = with_capacity(k_, offset_, size, allocated);
  copy.v_ = with_capacity(v_, offset_, size, allocated);
  return copy;
}

bool KvCache::finite() const {
  for (const Tensor* held : {&k_, &v_}) {
    const Dims& shape = held->shape();  // [batch, heads, allocated, d]
    const std::size_t row = bytes_of_row(*held);
    for (std::int64_t n = 0; n < shape[0] * shape[1]; ++n) {
      const char* begin =
          static_cast<const char*>(held->raw()) + static_cast<std::size_t>(n * shape[2] + offset_) * row;
      if (!all_finite(held->dtype(), begin, size_ * shape[3])) return false;
    }
  }
  return true;
}

ConstView KvCache::k() const noexcept { return rows_of(k_.view(), offset_, size_, d_k_); }
ConstView KvCache::v() const noexcept { return rows_of(v_.view(), offset_, size_, d_v_); }

std::size_t KvCache::bytes_per_token() const noexcept {
  const auto heads = static_cast<std::size_t>(k_.shape()[0] * k_.shape()[1]);
  return heads * (bytes_of_row(k_) + bytes_of_row(v_));
}

std::size_t KvCache::memory_bytes() const noexcept { return k_.bytes() + v_.bytes(); }

void KvCache::save(std::byte* to) const noexcept {
  for (const Tensor* held : {&k_, &v_}) {
    const Dims& shape = held->shape();
    const std::size_t row = bytes_of_row(*held);
    const std::size_t bytes = static_cast<std::size_t>(size_) * row;
    for (std::int64_t n = 0; n < shape[0] * shape[1]; ++n, to += bytes)
      std::memcpy(to,
                  static_cast<const std::byte*>(held->raw()) + static_cast<std::size_t>(n * shape[2] + offset_) * row,
                  bytes);
  }
}

void KvCache::restore(const std::byte* from, std::int64_t size) {
  if (size < 0 || size > capacity_)
    fail("the size to restore must be from 0 to " + std::to_string(capacity_), std::to_string(size));
  clear();
  if (size > k_.shape()[2]) grow(size);
  for (Tensor* held : {&k_, &v_}) {
    const Dims& shape = held->shape();
    const std::size_t row = bytes_of_row(*held);
    const std::size_t bytes = static_cast<std::size_t>(size) * row;
    for (std::int64_t n = 0; n < shape[0] * shape[1]; ++n, from += bytes)
      std::memcpy(static_cast<std::byte*>(held->raw()) + static_cast<std::size_t>(n * shape[2]) * row, from, bytes);
  }
  size_ = size;
}

void KvCache::discard_oldest(std::int64_t count) {
  if (count < 0 || count > size_)
    fail("the number of tokens to discard must be from 0 to " + std::to_string(size_), std::to_string(count));
  offset_ += count;
  first_key_ += count;
  size_ -= count;
}

void KvCache::truncate(std::int64_t size) {
  if (size < 0 || size > size_)
    fail("the size to keep must be from 0 to " + std::to_string(size_), std::to_string(size));
  size_ = size;
}

void KvCache::clear() noexcept { size_ = first_key_ = first_query_ = offset_ = 0; }

void KvCache::attend(const ConstView& q, const AttentionOptions& options, const AttentionResults& results) const {
  check_options(options);
  if (q.rank() != 4) fail("q must be [batch, n_head, q_len, d_k]", "shape " + to_string(q.shape));
  const std::int64_t q_len = q.shape[2];
  if (q_len > size_)
    fail("q_len of at most " + std::to_string(size_) + " (the number of cached tokens)", std::to_string(q_len));
  if (q_len > 0 && first_key_ + size_ - q_len < first_query_) {
    const std::int64_t most = std::max<std::int64_t>(0, first_key_ + size_ - first_query_);
    fail("q_len of at most " + std::to_string(most) + " (queries whose windows are still cached)",
         std::to_string(q_len));
  }
  AttentionOptions all = options;
  all.causal = true;
  all.alignment = Alignment::bottom_right;
  all.first_key = first_key_;
  if (q.dtype == query_dtype() || !is_floating(q.dtype) || !q) return attention(q, k(), v(), all, results);
  Tensor rounded(q.shape, query_dtype());  // [batch, n_head, q_len, d_k]
  copy_rows(q, rounded);
  attention(rounded, k(), v(), all, results);
}

}  // namespace qkv
