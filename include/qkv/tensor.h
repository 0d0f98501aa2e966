// SPDX-License-Identifier: Apache-2.0
// Arrays: element types, shapes, strided views (non-owning) and tensors (owning). No arithmetic.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qkv {

// Element types of arrays and files. q8_0 and later are block types: a few numbers of a row share a scale, in ggml's
// layout (docs/formats.md).
enum class DType : std::uint8_t {
  f32,
  f64,
  bf16,
  f16,
  i64,
  i32,
  boolean,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q4_k,
  q5_k,
  q6_k,
};

std::string_view dtype_name(DType dtype) noexcept;  // "f32", "bf16", "q8_0", ...
DType dtype_from_name(std::string_view name);       // throws std::invalid_argument
constexpr bool is_floating(DType dtype) noexcept { return dtype <= DType::f16; }
constexpr bool is_blocks(DType dtype) noexcept { return dtype >= DType::q8_0; }

// Size of one block; an element of any other type is a block of one.
struct BlockSize {
  std::int64_t elements, bytes;
};
constexpr BlockSize block_size(DType dtype) noexcept {
  constexpr BlockSize kSizes[] = {{1, 4},   {1, 8},   {1, 2},   {1, 2},   {1, 8},     {1, 4},     {1, 1},    {32, 34},
                                  {32, 18}, {32, 20}, {32, 22}, {32, 24}, {256, 144}, {256, 176}, {256, 210}};
  return kSizes[static_cast<std::size_t>(dtype)];
}
// Bytes per element; 0 for blocks.
constexpr std::size_t dtype_size(DType dtype) noexcept {
  return is_blocks(dtype) ? 0 : static_cast<std::size_t>(block_size(dtype).bytes);
}
// Bytes of that many adjacent elements, which must be whole blocks.
constexpr std::int64_t row_bytes(DType dtype, std::int64_t elements) noexcept {
  return elements / block_size(dtype).elements * block_size(dtype).bytes;
}

// Storage types: two bytes, no arithmetic. Conversion rounds to nearest even and preserves NaN and infinities.
struct bf16 {
  std::uint16_t bits = 0;
};
struct f16 {
  std::uint16_t bits = 0;
};
float to_f32(bf16 x) noexcept;
float to_f32(f16 x) noexcept;
bf16 to_bf16(float x) noexcept;
f16 to_f16(float x) noexcept;

// The supported C++ element types, and their DType: dtype_of<float> == DType::f32. Other types do not compile.
template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bf16> || std::same_as<T, f16> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::int32_t> || std::same_as<T, bool>;
template <Element T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

inline constexpr int kMaxRank = 8;

// Up to kMaxRank sizes or strides, outermost first. A scalar has rank 0.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);     // throws std::invalid_argument if there are too many
  explicit Dims(std::span<const std::int64_t> values);  // same

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int axis) const noexcept { return values_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) noexcept { return values_[static_cast<std::size_t>(axis)]; }
  const std::int64_t* begin() const noexcept { return values_.data(); }
  const std::int64_t* end() const noexcept { return values_.data() + rank_; }
  bool operator==(const Dims& other) const noexcept;

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

std::string to_string(const Dims& dims);        // "[4, 16, 512]"
std::int64_t element_count(const Dims& shape);  // throws std::invalid_argument on a negative size or overflow
Dims contiguous_strides(const Dims& shape);     // row-major, in elements

// Non-owning view: a pointer, a type, a shape and strides in elements (any sign, 0 to broadcast; for block types the
// last stride is 1 and the others are whole blocks).
// data == nullptr is the empty view: "not given" or "not wanted".
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;

  explicit operator bool() const noexcept { return data != nullptr; }
  int rank() const noexcept { return shape.rank(); }
};
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;

  explicit operator bool() const noexcept { return data != nullptr; }
  int rank() const noexcept { return shape.rank(); }
  operator ConstView() const noexcept { return {data, dtype, shape, strides}; }
};

template <Element T>
View view(T* data, const Dims& shape) {
  return {data, dtype_of<T>, shape, contiguous_strides(shape)};
}
template <Element T>
ConstView view(const T* data, const Dims& shape) {
  return {data, dtype_of<T>, shape, contiguous_strides(shape)};
}

// The same elements with two axes swapped, without a copy: [batch, seq, heads, d] -> [batch, heads, seq, d].
View swap_axes(View v, int a, int b) noexcept;
ConstView swap_axes(ConstView v, int a, int b) noexcept;

// An owning, row-major, 64-byte aligned array. Copying copies the elements; moving leaves an empty tensor. Rows of
// block types are whole blocks.
class Tensor {
 public:
  Tensor() = default;
  // Elements are zero. Throws std::bad_alloc, std::invalid_argument.
  explicit Tensor(const Dims& shape, DType dtype = DType::f32);
  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  const Dims& shape() const noexcept { return shape_; }
  DType dtype() const noexcept { return dtype_; }
  std::int64_t size() const noexcept { return size_; }  // elements
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(row_bytes(dtype_, size_)); }
  void* raw() noexcept { return data_.get(); }
  const void* raw() const noexcept { return data_.get(); }

  // The elements as T; throws std::invalid_argument if T is not the tensor's type.
  template <Element T = float>
  T* data() {
    require(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  template <Element T = float>
  const T* data() const {
    require(dtype_of<T>);
    return static_cast<const T*>(raw());
  }

  View view() noexcept { return {raw(), dtype_, shape_, contiguous_strides(shape_)}; }
  ConstView view() const noexcept { return {raw(), dtype_, shape_, contiguous_strides(shape_)}; }
  operator View() noexcept { return view(); }
  operator ConstView() const noexcept { return view(); }

 private:
  struct Free {
    std::size_t before;  // bytes from the start of the block to the first element
    void operator()(void* p) const noexcept;
  };
  void require(DType wanted) const;

  Dims shape_;
  DType dtype_ = DType::f32;
  std::int64_t size_ = 0;
  std::unique_ptr<void, Free> data_;
};

}  // namespace qkv
