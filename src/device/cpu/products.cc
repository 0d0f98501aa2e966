// SPDX-License-Identifier: Apache-2.0
// Matrix products with prepared weights.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/team.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_matrix.h"
#include "device/cpu/tasks.h"

namespace qkv {
namespace {

const Weights& of(const Matrix& w) { return static_cast<const CpuMatrix&>(w).weights; }
Weights& of(Matrix& w) { return static_cast<CpuMatrix&>(w).weights; }

}  // namespace

std::string_view CpuDevice::name() const noexcept { return "cpu"; }
DType CpuDevice::stream_type() const noexcept { return DType::f32; }
bool CpuDevice::supports_compute_dtype(DType type) const noexcept { return type == DType::f32 || type == DType::bf16; }

bool CpuDevice::fast_compute_dtype(DType type) const { return type != DType::bf16 || has_fast_bf16_products(); }

// Uses a team (core/team.h) if all products of the pass run on our own kernels.
void CpuDevice::run(std::int64_t rows, std::span<const Matrix* const> matrices, const std::function<void()>& pass) {
  const auto few = [=](const Matrix* w) { return of(*w).has_small_batch(rows); };
  if (!std::all_of(matrices.begin(), matrices.end(), few)) return pass();
  Team::lead(pass);
}

void CpuDevice::for_each(std::int64_t count, const std::function<void(std::int64_t)>& one) const {
  parallel_for(count, one);
}

Tensor CpuDevice::allocate(const Dims& shape, DType dtype) const { return Tensor(shape, dtype); }

std::unique_ptr<Matrix> CpuDevice::matrix(DType operand, std::int64_t in, std::int64_t out) const {
  return std::make_unique<CpuMatrix>(operand, in, out);
}

void CpuDevice::prepare(Matrix& w, std::span<const ConstView> parts, bool backward) const {
  std::vector<MatrixPart<float>> matrices;
  for (const ConstView& part : parts) matrices.push_back({data_of<float>(part), width_of(part)});
  of(w).prepare<float>(matrices, backward);
}

void CpuDevice::prepare_transposed(Matrix& w, const ConstView& transposed, bool backward) const {
  of(w).prepare_transposed(data_of<float>(transposed), rows_of(transposed), backward);
}

void CpuDevice::prepare_blocks(Matrix& w, std::span<const BlockColumns> parts) const { of(w).prepare_blocks(parts); }

void CpuDevice::product(const ConstView& x, const Matrix& w, const ConstView& bias, const View& y) {
  const auto run = [&]<class S, class D>(S, D) {
    of(w).forward(rows_of(x), data_of<S>(x), data_of<float>(bias), data_of<D>(y));
  };
  if (x.dtype == DType::f32) return run(float{}, float{});
  y.dtype == DType::f32 ? run(bf16{}, float{}) : run(bf16{}, bf16{});
}

void CpuDevice::product_backward(const ConstView& dy, const Matrix& w, const View& dx) {
  const auto run = [&]<class S, class D>(S, D) { of(w).backward_input(rows_of(dy), data_of<S>(dy), data_of<D>(dx)); };
  if (dy.dtype == DType::f32) return run(float{}, float{});
  dx.dtype == DType::f32 ? run(bf16{}, float{}) : run(bf16{}, bf16{});
}

void CpuDevice::prefetch(const Matrix& w) const { of(w).prefetch(); }

}  // namespace qkv
