// SPDX-License-Identifier: Apache-2.0
// Zero-copy views of Python arrays, and arrays for results, through DLPack and the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <qkv/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torch_tensor.h"

namespace qkv::python {

namespace nb = nanobind;

// The framework of a function's inputs, which is also that of its results. For `other`, results are NumPy arrays.
enum class Framework : std::uint8_t { numpy, torch, jax, other };
Framework framework_of(nb::handle object);

// A reference to a Python array. Any shape and strides; f32, f64, bf16, f16, i64, i32 or bool in CPU memory. Lists and
// numbers are converted to NumPy arrays. Create and destroy with the GIL held.
class Borrowed {
 public:
  Borrowed() = default;
  // `name` is the argument's name in errors. Throws std::invalid_argument for an array of another type or device, and
  // nb::type_error for an object that is not an array. writable: for a result; rejects read-only arrays.
  Borrowed(const char* name, nb::handle object, bool writable = false);

  const ConstView& view() const noexcept { return view_; }
  View writable_view() const noexcept {
    return {const_cast<void*>(view_.data), view_.dtype, view_.shape, view_.strides};
  }
  bool given() const noexcept { return view_.data != nullptr; }

 private:
  // An array's DLPack description.
  struct Shown {
    const void* data;
    nb::dlpack::dtype dtype;
    const std::int64_t *shape, *strides;  // strides: null if row-major
    int ndim;
    int device_type;
  };
  bool import(nb::handle object, bool writable, bool bits_of_bf16);
  bool take(const Shown& array);  // false if unsupported

  nb::ndarray<nb::ro> read_;
  nb::ndarray<> written_;
  TorchMemory torch_;
  ConstView view_;
};

// Integers from an int, a sequence or an array of any shape, in order; empty for None. Throws std::invalid_argument.
std::vector<std::int64_t> integers(const char* name, nb::handle object);

// An array for a result, in a given framework; uninitialized.
class Result {
 public:
  Result() = default;  // not wanted
  // like: an array of the framework, whose dtype object is used where the framework needs it (NumPy's bf16).
  Result(Framework framework, nb::handle like, const Dims& shape, DType dtype);
  // Writes to the given array, which is returned unchanged as an object.
  Result(const char* name, nb::handle out);

  View view() const noexcept { return view_; }
  bool wanted() const noexcept { return view_.data != nullptr; }
  nb::object object() const;  // None if not wanted

 private:
  nb::object object_;
  Borrowed memory_;
  View view_;
};

// Converts a tensor to a NumPy array that owns it, without a copy.
nb::object to_numpy(Tensor tensor);

// A zero-copy NumPy view of a tensor; keeps `owner`, which owns the tensor, alive.
nb::object shown_in_numpy(Tensor& tensor, nb::handle owner);
nb::object shown_in_numpy(const Tensor& tensor, nb::handle owner);  // read-only

}  // namespace qkv::python
