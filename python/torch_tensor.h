// SPDX-License-Identifier: Apache-2.0
// PyTorch tensors: imported through the DLPack C functions of PyTorch 2.10 and later, which take a tenth of the time of
// __dlpack__, and created for results. Call with the GIL held, and only if PyTorch is imported.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <qkv/tensor.h>

namespace qkv::python {

namespace nb = nanobind;

// DLManagedTensorVersioned of DLPack 1.
struct HeldTensor {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(HeldTensor*);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};

// Keeps the memory of a tensor alive.
class TorchMemory {
 public:
  TorchMemory() = default;
  // Empty if the type is a subclass (which may interpret its memory differently), if this PyTorch does not have these
  // functions, if the tensor has no accessible memory, or if it is read-only and `writable` is set.
  TorchMemory(nb::handle tensor, bool writable);
  ~TorchMemory() { release(); }
  TorchMemory(TorchMemory&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
  TorchMemory& operator=(TorchMemory&& other) noexcept;

  const nb::dlpack::dltensor* get() const noexcept { return held_ ? &held_->tensor : nullptr; }

 private:
  void release() noexcept;

  HeldTensor* held_ = nullptr;
};

bool is_plain_torch_tensor(nb::handle object);  // torch.Tensor or torch.nn.Parameter, not a subclass
// In CPU memory, regardless of the default device.
nb::object empty_torch_tensor(nb::handle shape, DType dtype);

}  // namespace qkv::python
