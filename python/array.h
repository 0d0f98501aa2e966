// SPDX-License-Identifier: Apache-2.0
// Python's arrays as views, and arrays for results, through DLPack and the buffer protocol: never a copy.
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

// Whose arrays a function was given, which is whose it returns. Everything else is answered with NumPy's.
enum class Framework : std::uint8_t { numpy, torch, jax, other };
Framework framework_of(nb::handle object);

// An array of Python's, held while it is looked at. Any shape and strides; f32, f64, bf16, f16, i64, i32 or bool in
// this processor's memory. Lists and numbers become NumPy's arrays first. To be made and destroyed with the GIL held.
class Borrowed {
 public:
  Borrowed() = default;
  // `name` stands for the argument in errors. Throws std::invalid_argument for an array of another type or device and
  // nb::type_error for what is no array. writable: for a result; a read-only array is then refused.
  Borrowed(const char* name, nb::handle object, bool writable = false);

  const ConstView& view() const noexcept { return view_; }
  View writable_view() const noexcept {
    return {const_cast<void*>(view_.data), view_.dtype, view_.shape, view_.strides};
  }
  bool given() const noexcept { return view_.data != nullptr; }

 private:
  // What DLPack says of an array.
  struct Shown {
    const void* data;
    nb::dlpack::dtype dtype;
    const std::int64_t *shape, *strides;  // strides: null where it is row-major
    int ndim;
    int device_type;
  };
  bool import(nb::handle object, bool writable, bool bits_of_bf16);
  bool take(const Shown& array);  // false if it is not what qkv reads

  nb::ndarray<nb::ro> read_;
  nb::ndarray<> written_;
  TorchMemory torch_;
  ConstView view_;
};

// Whole numbers from an int, a sequence or an array of any shape, in order; None is none at all. Throws
// std::invalid_argument.
std::vector<std::int64_t> integers(const char* name, nb::handle object);

// An array of a framework's own for a result, not filled.
class Result {
 public:
  Result() = default;  // not wanted
  // like: an array of the framework, whose dtype object is used where the framework needs it (NumPy's bf16).
  Result(Framework framework, nb::handle like, const Dims& shape, DType dtype);
  // Someone's array to be written to; it is returned as it came.
  Result(const char* name, nb::handle out);

  View view() const noexcept { return view_; }
  bool wanted() const noexcept { return view_.data != nullptr; }
  nb::object object() const;  // None if not wanted

 private:
  nb::object object_;
  Borrowed memory_;
  View view_;
};

// A tensor as an array of NumPy's that owns it, without a copy.
nb::object to_numpy(Tensor tensor);

// An array of NumPy's that shows a tensor where it lies and keeps `owner`, which holds it.
nb::object shown_in_numpy(Tensor& tensor, nb::handle owner);
nb::object shown_in_numpy(const Tensor& tensor, nb::handle owner);  // read-only

}  // namespace qkv::python
