// SPDX-License-Identifier: Apache-2.0
#include "torch_tensor.h"

#include <array>
#include <utility>

namespace qkv::python {
namespace {

constexpr std::uint64_t kReadOnly = 1;

// DLPackExchangeAPI of DLPack 1.2; functions not called here are declared as void pointers.
struct ExchangeApi {
  std::uint32_t major, minor;
  void* older;
  void* allocate;
  int (*held_from)(void* object, HeldTensor** out);
  void* object_from;
  void* shown_from;
  void* current_stream;
};

// Looked up once. These objects live as long as the process: modules are never unloaded.
struct Torch {
  nb::handle tensor, parameter, empty, cpu;
  std::array<nb::handle, 7> dtypes;
  const ExchangeApi* api = nullptr;

  Torch() {
    const nb::module_ torch = nb::module_::import_("torch");
    tensor = nb::object(torch.attr("Tensor")).release();
    parameter = nb::object(torch.attr("nn").attr("Parameter")).release();
    empty = nb::object(torch.attr("empty")).release();
    cpu = nb::object(torch.attr("device")("cpu")).release();
    for (const auto& [name, dtype] : {std::pair{"float32", DType::f32},
                                      {"float64", DType::f64},
                                      {"float16", DType::f16},
                                      {"bfloat16", DType::bf16},
                                      {"int64", DType::i64},
                                      {"int32", DType::i32},
                                      {"bool", DType::boolean}})
      dtypes[std::size_t(dtype)] = nb::object(torch.attr(name)).release();
    const nb::object capsule = nb::getattr(tensor, "__dlpack_c_exchange_api__", nb::none());
    if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return;
    const auto* given = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (given->major == 1) api = given;
  }
};

const Torch& torch() {
  static const Torch found;
  return found;
}

}  // namespace

bool is_plain_torch_tensor(nb::handle object) {
  const nb::handle type = object.type();
  return type.is(torch().tensor) || type.is(torch().parameter);
}

nb::object empty_torch_tensor(nb::handle shape, DType dtype) {
  return torch().empty(shape, nb::arg("dtype") = torch().dtypes[std::size_t(dtype)], nb::arg("device") = torch().cpu);
}

TorchMemory::TorchMemory(nb::handle tensor, bool writable) {
  if (!torch().api || !is_plain_torch_tensor(tensor)) return;
  if (torch().api->held_from(tensor.ptr(), &held_) != 0) {
    PyErr_Clear();
    held_ = nullptr;
  } else if (held_->major != 1 || (writable && (held_->flags & kReadOnly) != 0)) {
    release();
  }
}

TorchMemory& TorchMemory::operator=(TorchMemory&& other) noexcept {
  std::swap(held_, other.held_);
  return *this;
}

void TorchMemory::release() noexcept {
  if (held_ && held_->deleter) held_->deleter(held_);
  held_ = nullptr;
}

}  // namespace qkv::python
