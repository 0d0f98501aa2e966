// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace qkv::python {
namespace {

// Looked up once. These objects live as long as the process: modules are never unloaded.
nb::handle numpy() {
  static const nb::handle module = nb::module_::import_("numpy").release();
  return module;
}
nb::handle numpy_type() {
  static const nb::handle type = nb::object(numpy().attr("ndarray")).release();
  return type;
}

std::optional<DType> dtype_from(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) { return dtype.code == std::uint8_t(code) && dtype.bits == bits; };
  if (dtype.lanes != 1) return std::nullopt;
  if (is(Code::Float, 32)) return DType::f32;
  if (is(Code::Float, 64)) return DType::f64;
  if (is(Code::Float, 16)) return DType::f16;
  if (is(Code::Bfloat, 16)) return DType::bf16;
  if (is(Code::Int, 64)) return DType::i64;
  if (is(Code::Int, 32)) return DType::i32;
  if (is(Code::Bool, 8)) return DType::boolean;
  return std::nullopt;
}

nb::dlpack::dtype to_dlpack(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = std::uint8_t(8 * dtype_size(dtype));
  Code code = Code::Float;
  if (dtype == DType::bf16) code = Code::Bfloat;
  if (dtype == DType::i64 || dtype == DType::i32) code = Code::Int;
  if (dtype == DType::boolean) code = Code::Bool;
  return {std::uint8_t(code), bits, 1};
}

std::string text_of(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  const char* bytes = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (!bytes) throw nb::python_error();
  return bytes;
}

// NumPy's bf16 is a type registered by ml_dtypes, which neither DLPack nor buffers export. Detect it by name.
bool is_numpy_bf16(nb::handle array) {
  return text_of(nb::getattr(array.attr("dtype"), "name", nb::none())) == "bfloat16";
}

std::string class_name(nb::handle object) { return text_of(nb::getattr(object.type(), "__name__")); }

bool is_true(nb::handle object, const char* attribute) {
  return nb::getattr(object, attribute, nb::none()).is(nb::handle(Py_True));
}

[[noreturn]] void refuse(const char* name, nb::handle object, bool writable) {
  const std::string where = std::string("[attention] ") + name;
  if (!nb::hasattr(object, "dtype") && !PyObject_CheckBuffer(object.ptr()))
    throw nb::type_error((where + " must be an array; found " + class_name(object)).c_str());
  if (is_true(object, "requires_grad"))
    throw std::invalid_argument(where + " must not require a gradient; detach it, or use qkv.torch");
  const std::string dtype = text_of(nb::getattr(object, "dtype", nb::str("another type")));
  throw std::invalid_argument(
      where + " must be " + (writable ? "a writable" : "an") +
      " aligned array of at most 8 axes in CPU memory, exported by DLPack or the buffer protocol; found " +
      class_name(object) + " of " + dtype);
}

nb::handle numpy_dtype(DType dtype) {
  static const std::array<nb::handle, 7> types = [] {
    std::array<nb::handle, 7> made{};
    for (const auto& [name, type] : {std::pair{"float32", DType::f32},
                                     {"float64", DType::f64},
                                     {"float16", DType::f16},
                                     {"int64", DType::i64},
                                     {"int32", DType::i32},
                                     {"bool", DType::boolean}})
      made[std::size_t(type)] = nb::object(numpy().attr("dtype")(name)).release();
    return made;
  }();
  return types[std::size_t(dtype)];
}

nb::tuple to_tuple(const Dims& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) PyTuple_SET_ITEM(tuple.ptr(), i, PyLong_FromLongLong(shape[i]));
  return nb::borrow<nb::tuple>(tuple);
}

// Kind: the framework, and nb::ro for read-only.
template <class... Kind>
nb::object shown(const Tensor& tensor, nb::handle owner) {
  std::array<std::size_t, kMaxRank> shape{};
  for (int i = 0; i < tensor.shape().rank(); ++i) shape[std::size_t(i)] = std::size_t(tensor.shape()[i]);
  static char nothing = 0;
  void* data = tensor.raw() ? const_cast<void*>(tensor.raw()) : &nothing;
  return nb::cast(nb::ndarray<Kind...>(data, std::size_t(tensor.shape().rank()), shape.data(), owner, nullptr,
                                       to_dlpack(tensor.dtype())));
}

// Converts a tensor to an array of a framework, which takes ownership.
template <class Kind>
nb::object owned_by(Tensor tensor) {
  auto* held = new Tensor(std::move(tensor));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return shown<Kind>(*held, owner);
}

}  // namespace

Framework framework_of(nb::handle object) {
  static bool torch_was_seen = false;
  if (object.type().is(numpy_type())) return Framework::numpy;
  if (torch_was_seen && is_plain_torch_tensor(object)) return Framework::torch;
  const nb::object module = nb::getattr(object.type(), "__module__", nb::str(""));
  if (!nb::isinstance<nb::str>(module)) return Framework::other;
  const std::string name = text_of(module);
  const auto belongs = [&](std::string_view package) {
    return name.starts_with(package) && (name.size() == package.size() || name[package.size()] == '.');
  };
  if (belongs("torch")) {
    torch_was_seen = true;
    return Framework::torch;
  }
  if (belongs("jaxlib") || belongs("jax")) return Framework::jax;
  // Parameter and other subclasses of tensors.
  for (nb::handle base : nb::borrow<nb::tuple>(object.type().attr("__mro__"))) {
    if (base.is(numpy_type())) return Framework::numpy;
    if (text_of(nb::getattr(base, "__module__", nb::str(""))) == "torch") return Framework::torch;
  }
  return Framework::other;
}

Borrowed::Borrowed(const char* name, nb::handle given, bool writable) {
  nb::object object = nb::borrow(given);
  if (PyList_Check(given.ptr()) || PyTuple_Check(given.ptr()) || PyFloat_Check(given.ptr()))
    object = numpy().attr("asarray")(given);
  const Framework framework = framework_of(object);
  if (framework == Framework::torch) {
    if (is_true(object, "requires_grad")) refuse(name, object, writable);  // its gradient would be lost silently
    if (nb::cast<bool>(object.attr("is_neg")()))                           // not visible in its memory
      throw std::invalid_argument(
          std::string("[attention] ") + name +
          " must not be lazily negated; found a tensor with the negative bit (call resolve_neg())");
    torch_ = TorchMemory(object, writable);
    if (const nb::dlpack::dltensor* shown = torch_.get()) {
      if (!take({static_cast<char*>(shown->data) + shown->byte_offset, shown->dtype, shown->shape, shown->strides,
                 shown->ndim, shown->device.device_type}))
        refuse(name, object, writable);
      return;
    }
  } else if (framework != Framework::numpy && nb::hasattr(object, "block_until_ready")) {
    object.attr("block_until_ready")();
    // JAX's buffer protocol takes a fifth of the time of its __dlpack__, but does not support bf16.
    if (!writable && PyObject_CheckBuffer(object.ptr())) {
      if (nb::object buffer = nb::steal(PyMemoryView_FromObject(object.ptr())); buffer.is_valid()) {
        if (import(buffer, writable, false)) return;
      } else {
        PyErr_Clear();
      }
    }
  }
  if (import(object, writable, false)) return;
  if (PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(numpy_type().ptr())) && is_numpy_bf16(object) &&
      import(object.attr("view")("uint16"), writable, true))
    return;
  refuse(name, object, writable);
}

bool Borrowed::take(const Shown& array) {
  const std::optional<DType> dtype = dtype_from(array.dtype);
  if (!dtype || array.ndim > kMaxRank || array.device_type != nb::device::cpu::value) return false;
  const auto rank = static_cast<std::size_t>(array.ndim);
  view_ = {array.data, *dtype, Dims(std::span(array.shape, rank)), {}};
  view_.strides = array.strides ? Dims(std::span(array.strides, rank)) : contiguous_strides(view_.shape);
  if (element_count(view_.shape) == 0) {  // address and strides do not matter
    static std::int64_t nothing = 0;      // null would mean "not given"
    view_.data = &nothing;
    view_.strides = contiguous_strides(view_.shape);
  }
  return view_.data && reinterpret_cast<std::uintptr_t>(view_.data) % dtype_size(*dtype) == 0;
}

bool Borrowed::import(nb::handle object, bool writable, bool bits_of_bf16) {
  const auto show = [&](const auto& array) {
    const nb::dlpack::dtype bits{std::uint8_t(nb::dlpack::dtype_code::UInt), 16, 1};
    const auto dtype = bits_of_bf16 && array.dtype() == bits ? to_dlpack(DType::bf16) : array.dtype();
    return take({array.data(), dtype, array.shape_ptr(), array.stride_ptr(), static_cast<int>(array.ndim()),
                 array.device_type()});
  };
  if (writable) return nb::try_cast(object, written_, false) && show(written_);
  return nb::try_cast(object, read_, false) && show(read_);
}

std::vector<std::int64_t> integers(const char* name, nb::handle object) {
  if (object.is_none()) return {};
  if (PyIndex_Check(object.ptr()) && !nb::hasattr(object, "shape")) {
    const long long value = PyLong_AsLongLong(nb::steal(PyNumber_Index(object.ptr())).ptr());
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return {value};
  }
  const Borrowed array(name, object);
  const ConstView& view = array.view();
  const std::int64_t count = element_count(view.shape);
  if (view.dtype != DType::i64 && view.dtype != DType::i32 && count > 0)
    throw std::invalid_argument(std::string("[attention] ") + name + " must be 32- or 64-bit integers; found " +
                                std::string(dtype_name(view.dtype)) + " " + to_string(view.shape));
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = 0;
    for (int axis = view.rank() - 1; axis >= 0; --axis) {
      at += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    values[std::size_t(i)] = view.dtype == DType::i64 ? static_cast<const std::int64_t*>(view.data)[at]
                                                      : static_cast<const std::int32_t*>(view.data)[at];
  }
  return values;
}

Result::Result(Framework framework, nb::handle like, const Dims& shape, DType dtype) {
  if (framework == Framework::torch) {
    object_ = empty_torch_tensor(to_tuple(shape), dtype);
  } else if (framework == Framework::numpy && dtype == DType::bf16) {
    object_ = numpy().attr("empty")(to_tuple(shape), like.attr("dtype"));
  } else if (framework == Framework::jax) {
    object_ = owned_by<nb::jax>(Tensor(shape, dtype));
  } else if (dtype == DType::bf16) {
    object_ = owned_by<nb::array_api>(Tensor(shape, dtype));
  } else {
    static const nb::handle empty = nb::object(numpy().attr("empty")).release();
    PyObject* arguments[] = {to_tuple(shape).release().ptr(), numpy_dtype(dtype).ptr()};
    object_ = nb::steal(PyObject_Vectorcall(empty.ptr(), arguments, 2, nullptr));
    Py_DECREF(arguments[0]);
    if (!object_.is_valid()) throw nb::python_error();
  }
  memory_ = Borrowed("a result", object_, framework != Framework::jax);
  view_ = memory_.writable_view();
}

Result::Result(const char* name, nb::handle out)
    : object_(nb::borrow(out)), memory_(name, out, true), view_(memory_.writable_view()) {}

nb::object Result::object() const { return wanted() ? object_ : nb::none(); }

nb::object to_numpy(Tensor tensor) { return owned_by<nb::numpy>(std::move(tensor)); }
nb::object shown_in_numpy(Tensor& tensor, nb::handle owner) { return shown<nb::numpy>(tensor, owner); }
nb::object shown_in_numpy(const Tensor& tensor, nb::handle owner) { return shown<nb::numpy, nb::ro>(tensor, owner); }

}  // namespace qkv::python
