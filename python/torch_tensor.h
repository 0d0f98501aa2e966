// SPDX-License-Identifier: Apache-2.0
// PyTorch's tensors: read through the C functions of DLPack that PyTorch 2.10 and later give, which cost a tenth of
// what __dlpack__ costs, and made for results. All of it with the GIL held, and only once PyTorch is imported.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <qkv/tensor.h>

namespace qkv::python {

namespace nb = nanobind;

// DLManagedTensorVersioned, as DLPack 1 lays it out.
struct HeldTensor {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(HeldTensor*);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};

// The memory of a tensor, which stays until this is destroyed.
class TorchMemory {
 public:
  TorchMemory() = default;
  // Holds nothing where the type is not PyTorch's own (a subclass may mean something else by its memory), where this
  // PyTorch has no such functions, or where the tensor has no memory to show; and for writing, where it is read-only.
  TorchMemory(nb::handle tensor, bool writable);
  ~TorchMemory() { release(); }
  TorchMemory(TorchMemory&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
  TorchMemory& operator=(TorchMemory&& other) noexcept;

  const nb::dlpack::dltensor* get() const noexcept { return held_ ? &held_->tensor : nullptr; }

 private:
  void release() noexcept;

  HeldTensor* held_ = nullptr;
};

bool is_plain_torch_tensor(nb::handle object);  // torch.Tensor or torch.nn.Parameter, and no subclass of them
// In this processor's memory, whatever the default device.
nb::object empty_torch_tensor(nb::handle shape, DType dtype);

}  // namespace qkv::python
