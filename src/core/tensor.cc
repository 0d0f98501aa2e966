// SPDX-License-Identifier: Apache-2.0
#include "qkv/tensor.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>

#include "core/float_types.h"
#include "core/large_memory.h"

namespace qkv {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargePage = std::size_t{2} << 20, kLarge = 4 * kLargePage;  // bytes

// Puts large blocks in large pages where available: hardware prefetching and address translation work per page.
void request_large_pages([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  madvise(p, bytes, MADV_HUGEPAGE);
#endif
}

void* allocate(std::size_t bytes) noexcept {
  void* p = nullptr;
  if (posix_memalign(&p, bytes >= kLarge ? kLargePage : kAlignment, bytes) != 0) return nullptr;
  if (bytes >= kLarge) request_large_pages(p, bytes);
  return p;
}

// Zeros, starting `before` bytes into the block to pass to std::free. calloc recognizes memory fresh from the system,
// which is zero and stays untouched until the threads that use it write: clearing gigabytes here would be
// single-threaded.
void* allocate_zeros(std::size_t bytes, std::size_t& before) noexcept {
  const std::size_t alignment = bytes >= kLarge ? kLargePage : kAlignment;
  char* block = static_cast<char*>(std::calloc(1, bytes + alignment));
  if (!block) return nullptr;
  before = (alignment - reinterpret_cast<std::uintptr_t>(block) % alignment) % alignment;
  if (bytes >= kLarge) request_large_pages(block + before, bytes);
  return block + before;
}

constexpr std::string_view kDTypeNames[] = {"f32",  "f64",  "bf16", "f16",  "i64",  "i32",  "bool", "q8_0",
                                            "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};
static_assert(std::size(kDTypeNames) == static_cast<std::size_t>(DType::q6_k) + 1);

template <class V>
V swapped(V v, int a, int b) noexcept {
  std::swap(v.shape[a], v.shape[b]);
  std::swap(v.strides[a], v.strides[b]);
  return v;
}

}  // namespace

std::shared_ptr<void> matrix_memory(std::size_t bytes) {
  constexpr std::size_t kBlock = std::size_t{32} << 20, kSmall = std::size_t{128} << 10;
  static std::mutex mutex;
  static std::weak_ptr<void> current;
  static std::size_t used = 0;
  const auto block_of = [](std::size_t size) {
    void* p = allocate(size);
    if (!p) throw std::bad_alloc();
    return std::shared_ptr<void>(p, std::free);
  };
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded < kSmall || rounded > kBlock / 2) return block_of(rounded);
  const std::lock_guard lock(mutex);
  std::shared_ptr<void> block = current.lock();
  if (!block || used + rounded > kBlock) {
    block = block_of(kBlock);
    current = block;
    used = 0;
  }
  void* slice = static_cast<std::byte*>(block.get()) + used;
  used += rounded;
  return {block, slice};
}

std::string_view dtype_name(DType dtype) noexcept { return kDTypeNames[static_cast<std::size_t>(dtype)]; }

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < std::size(kDTypeNames); ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kDTypeNames[i]);
  }
  throw std::invalid_argument("[dtype] expected one of " + known + "; found '" + std::string(name) + "'");
}

float to_f32(bf16 x) noexcept { return widen(x); }
float to_f32(f16 x) noexcept { return widen(x); }
bf16 to_bf16(float x) noexcept { return narrow<bf16>(x); }
f16 to_f16(float x) noexcept { return narrow<f16>(x); }

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > kMaxRank)
    throw std::invalid_argument("[shape] expected at most " + std::to_string(kMaxRank) + " dimensions; found " +
                                std::to_string(values.size()));
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

bool Dims::operator==(const Dims& other) const noexcept {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.rank(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

std::int64_t element_count(const Dims& shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (std::int64_t size : shape) {
    if (size < 0) throw std::invalid_argument("[shape] expected sizes of at least 0; found " + to_string(shape));
    empty |= size == 0;
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count))
      throw std::invalid_argument("[shape] too many elements; found " + to_string(shape));
  }
  return empty ? 0 : count;
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

View swap_axes(View v, int a, int b) noexcept { return swapped(v, a, b); }
ConstView swap_axes(ConstView v, int a, int b) noexcept { return swapped(v, a, b); }

Tensor::Tensor(const Dims& shape, DType dtype) : shape_(shape), dtype_(dtype), size_(element_count(shape)) {
  const BlockSize block = block_size(dtype);
  if (is_blocks(dtype) && (shape.rank() == 0 || shape[shape.rank() - 1] % block.elements != 0))
    throw std::invalid_argument("[tensor] expected rows of " + std::string(dtype_name(dtype)) + " with a multiple of " +
                                std::to_string(block.elements) + " elements; found " + to_string(shape));
  if (size_ > INT64_MAX / block.bytes) throw std::bad_alloc();
  // A tensor without elements still has an address, so that its view is not an empty view.
  const std::size_t rounded = (std::max<std::size_t>(bytes(), 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::size_t before = 0;
  void* p = allocate_zeros(rounded, before);
  if (!p) throw std::bad_alloc();
  data_ = {p, Free{before}};
}

Tensor::Tensor(const Tensor& other) {
  if (!other.data_) return;
  *this = Tensor(other.shape_, other.dtype_);
  std::memcpy(raw(), other.raw(), bytes());
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

void Tensor::Free::operator()(void* p) const noexcept { std::free(static_cast<char*>(p) - before); }

void Tensor::require(DType wanted) const {
  if (data_ && wanted != dtype_)
    throw std::invalid_argument("[tensor] expected elements of type " + std::string(dtype_name(dtype_)) +
                                "; found a request for " + std::string(dtype_name(wanted)));
}

}  // namespace qkv
