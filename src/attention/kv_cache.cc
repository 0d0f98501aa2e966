// SPDX-License-Identifier: Apache-2.0
#include "qkv/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "attention/problem.h"
#include "attention/reference.h"

namespace qkv {
namespace {

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[kv_cache] " + expected + "; found " + found);
}

// Rows first ... first + count of [batch, heads, rows, d].
template <class V>
V rows_of(V view, std::int64_t first, std::int64_t count) noexcept {
  const std::int64_t offset = first * view.strides[2] * static_cast<std::int64_t>(dtype_size(view.dtype));
  using Byte = std::conditional_t<std::is_same_v<V, View>, char, const char>;
  view.data = static_cast<Byte*>(view.data) + offset;
  view.shape[2] = count;
  return view;
}

// from [batch, heads, rows, d] rounded to the type of `to`, which has the same shape.
void copy_rows(const ConstView& from, const View& to) noexcept {
  const Dims &f = from.strides, &t = to.strides;
  for (std::int64_t b = 0; b < from.shape[0]; ++b)
    for (std::int64_t h = 0; h < from.shape[1]; ++h)
      for (std::int64_t i = 0; i < from.shape[2]; ++i)
        for (std::int64_t c = 0; c < from.shape[3]; ++c) {
          const std::int64_t source = b * f[0] + h * f[1] + i * f[2] + c * f[3];
          const std::int64_t target = b * t[0] + h * t[1] + i * t[2] + c * t[3];
          if (to.dtype == DType::f64) {
            reference::store_element(to, target, load_element<double>(from, source));
          } else {
            reference::store_element(to, target, load_element<float>(from, source));
          }
        }
}

// Moves rows first ... first + count of each head to the head's beginning.
void move_to_front(Tensor& tensor, std::int64_t first, std::int64_t count) noexcept {
  const Dims& shape = tensor.shape();  // [batch, heads, room, d]
  const auto row = static_cast<std::size_t>(shape[3]) * dtype_size(tensor.dtype());
  const std::size_t head = static_cast<std::size_t>(shape[2]) * row;
  for (std::int64_t n = 0; n < shape[0] * shape[1]; ++n) {
    char* begin = static_cast<char*>(tensor.raw()) + static_cast<std::size_t>(n) * head;
    std::memmove(begin, begin + static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row);
  }
}

void check_size(const char* name, std::int64_t size, std::int64_t least) {
  if (size < least) fail(std::string(name) + " must be at least " + std::to_string(least), std::to_string(size));
}

void check_new(const char* name, const ConstView& view, const Tensor& held, std::int64_t new_len) {
  const Dims wanted{held.shape()[0], held.shape()[1], new_len, held.shape()[3]};
  if (!(view.shape == wanted))
    fail(std::string(name) + " must have the shape " + to_string(wanted), to_string(view.shape));
  if (!is_floating(view.dtype)) fail(std::string(name) + " must be floating", std::string(dtype_name(view.dtype)));
  if (!view && element_count(wanted) > 0) fail(std::string(name) + " must be given", "a view without data");
}

}  // namespace

KvCache::KvCache(std::int64_t batch, std::int64_t n_kv_head, std::int64_t d_k, std::int64_t d_v, std::int64_t capacity,
                 std::int64_t window, DType dtype)
    : capacity_(capacity), window_(window) {
  check_size("batch", batch, 0);
  check_size("n_kv_head", n_kv_head, 1);
  check_size("d_k", d_k, 1);
  check_size("d_v", d_v, 1);
  check_size("capacity", capacity, 1);
  check_size("window", window, 0);
  if (window > capacity)
    fail("window must be at most the capacity (" + std::to_string(capacity) + ")", std::to_string(window));
  if (!is_floating(dtype)) fail("the type must be f32, bf16, f16 or f64", std::string(dtype_name(dtype)));
  // A rolling cache has some room to roll in, so that it moves its contents now and then only.
  const std::int64_t room = window == 0 ? capacity : capacity + std::max<std::int64_t>(64, capacity / 4);
  k_ = Tensor({batch, n_kv_head, room, d_k}, dtype);
  v_ = Tensor({batch, n_kv_head, room, d_v}, dtype);
}

void KvCache::append(const ConstView& k, const ConstView& v) {
  const std::int64_t count = k.rank() == 4 ? k.shape[2] : 0;
  check_new("k", k, k_, count);
  check_new("v", v, v_, count);
  if (count == 0) return;
  // When it is full: what the oldest of the new tokens still sees through its window, and the new tokens.
  std::int64_t kept = size_, skipped = 0;
  if (count > capacity_ - size_) {
    if (window_ == 0) {
      fail("room for " + std::to_string(count) + " more tokens",
           std::to_string(size_) + " held of a capacity of " + std::to_string(capacity_));
    }
    skipped = std::max<std::int64_t>(0, count - capacity_);
    kept = std::min({size_, window_ - 1, capacity_ - (count - skipped)});
  }
  first_key_ += size_ - kept + skipped;
  if (kept < size_ || skipped > 0) first_query_ = first_key_ + window_ - 1;
  offset_ += size_ - kept;
  size_ = kept;
  const std::int64_t added = count - skipped;
  if (offset_ + size_ + added > k_.shape()[2]) {
    move_to_front(k_, offset_, size_);
    move_to_front(v_, offset_, size_);
    offset_ = 0;
  }
  copy_rows(rows_of(k, skipped, added), rows_of(k_.view(), offset_ + size_, added));
  copy_rows(rows_of(v, skipped, added), rows_of(v_.view(), offset_ + size_, added));
  size_ += added;
}

ConstView KvCache::k() const noexcept { return rows_of(k_.view(), offset_, size_); }
ConstView KvCache::v() const noexcept { return rows_of(v_.view(), offset_, size_); }

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
  const auto only = [](bool unset, const char* name) {
    if (!unset) fail("only scale, softcap, window_left, alibi_slopes, sinks and path among the options", name);
  };
  only(!options.causal && options.alignment == Alignment::none && options.start.empty(), "causal or an alignment");
  only(options.window_right == -1, "window_right");
  only(!options.mask, "mask");
  only(options.q_lengths.empty() && options.kv_lengths.empty(), "lengths");
  only(!options.require_readable_key, "require_readable_key");
  only(options.first_key == 0, "first_key");
  only(options.dropout.p == 0, "dropout");
  if (q.rank() != 4) fail("q must be [batch, n_head, q_len, d_k]", "shape " + to_string(q.shape));
  const std::int64_t q_len = q.shape[2];
  if (q_len > size_)
    fail("at most " + std::to_string(size_) + " queries, as many as tokens are held", std::to_string(q_len));
  if (q_len > 0 && first_key_ + size_ - q_len < first_query_) {
    const std::int64_t most = std::max<std::int64_t>(0, first_key_ + size_ - first_query_);
    fail("at most " + std::to_string(most) + " queries, whose windows are still held", std::to_string(q_len));
  }
  AttentionOptions all = options;
  all.causal = true;
  all.alignment = Alignment::bottom_right;
  all.first_key = first_key_;
  if (q.dtype == k_.dtype() || !is_floating(q.dtype) || !q) return attention(q, k(), v(), all, results);
  Tensor rounded(q.shape, k_.dtype());  // [batch, n_head, q_len, d_k]
  copy_rows(q, rounded);
  attention(rounded, k(), v(), all, results);
}

}  // namespace qkv
