// SPDX-License-Identifier: Apache-2.0
#include "attention/arrays.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace qkv::test {
namespace {

// Calls visit(offset) for each index in row-major order.
template <class Visit>
void for_each(const Dims& shape, const Dims& strides, const Visit& visit) {
  const std::int64_t count = element_count(shape);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t offset = 0, rest = n;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    visit(offset);
  }
}

DType sums(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

double get(const ConstView& view, std::int64_t offset) {
  switch (view.dtype) {
    case DType::f64:
      return static_cast<const double*>(view.data)[offset];
    case DType::bf16:
      return to_f32(static_cast<const bf16*>(view.data)[offset]);
    case DType::f16:
      return to_f32(static_cast<const f16*>(view.data)[offset]);
    case DType::boolean:
      return static_cast<const bool*>(view.data)[offset];
    default:
      return static_cast<const float*>(view.data)[offset];
  }
}

void set(const View& view, std::int64_t offset, double value) {
  switch (view.dtype) {
    case DType::f64:
      static_cast<double*>(view.data)[offset] = value;
      break;
    case DType::bf16:
      static_cast<bf16*>(view.data)[offset] = to_bf16(static_cast<float>(value));
      break;
    case DType::f16:
      static_cast<f16*>(view.data)[offset] = to_f16(static_cast<float>(value));
      break;
    case DType::boolean:
      static_cast<bool*>(view.data)[offset] = value != 0;
      break;
    default:
      static_cast<float*>(view.data)[offset] = static_cast<float>(value);
      break;
  }
}

double rounded(double value, DType dtype) {
  Tensor one({1}, dtype);
  set(one, 0, value);
  return get(one, 0);
}

std::vector<double> values(const ConstView& view) {
  std::vector<double> all;
  if (view) for_each(view.shape, view.strides, [&](std::int64_t offset) { all.push_back(get(view, offset)); });
  return all;
}

void fill(const View& view, const std::vector<double>& from) {
  std::size_t n = 0;
  for_each(view.shape, view.strides, [&](std::int64_t offset) { set(view, offset, from.at(n++)); });
}

Tensor make(const Dims& shape, const std::vector<double>& from, DType dtype) {
  Tensor tensor(shape, dtype);
  fill(tensor, from);
  return tensor;
}

Tensor random(const Dims& shape, std::uint64_t seed, DType dtype, double deviation) {
  const Random numbers(seed, 77);
  Tensor tensor(shape, dtype);
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    set(tensor, i, deviation * numbers.normal(static_cast<std::uint64_t>(i)));
  return tensor;
}

Tensor converted(const ConstView& view, DType dtype) { return make(view.shape, values(view), dtype); }

Tensor bool_mask(const Dims& shape, std::initializer_list<int> allowed) {
  return make(shape, std::vector<double>(allowed.begin(), allowed.end()), DType::boolean);
}

StridedArray::StridedArray(const Dims& shape, DType dtype, Draw& draw, double sentinel)
    : sentinel_(rounded(sentinel, dtype)) {
  std::vector<int> order(static_cast<std::size_t>(shape.rank()));  // axes from outermost to innermost in memory
  std::iota(order.begin(), order.end(), 0);
  if (draw.chance(0.3)) std::swap(order[1], order[2]);  // [batch, seq, heads, d]
  if (draw.chance(0.15)) std::swap(order[static_cast<std::size_t>(draw.from(0, shape.rank() - 1))], order.back());
  Dims strides = shape;
  std::int64_t step = 1, first = 0;
  const bool gaps = draw.chance(0.4), backwards = draw.chance(0.25);
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const std::int64_t size = std::max<std::int64_t>(shape[*axis], 1), gap = gaps ? draw.from(0, 2) : 0;
    const bool negative = backwards && draw.chance(0.5);
    if (axis == order.rbegin() && gaps && draw.chance(0.5)) step = 2;
    strides[*axis] = negative ? -step : step;
    if (negative) first += step * (size - 1);
    step *= size + gap;
  }
  memory_ = Tensor({step}, dtype);
  const View all = memory_;
  for (std::int64_t i = 0; i < memory_.size(); ++i) set(all, i, sentinel_);
  char* data = static_cast<char*>(memory_.raw()) + static_cast<std::size_t>(first) * dtype_size(dtype);
  view_ = {data, dtype, shape, strides};
}

bool StridedArray::gaps_untouched() const {
  Tensor copy = memory_;
  const auto first = static_cast<const char*>(view_.data) - static_cast<const char*>(memory_.raw());
  const View same{static_cast<char*>(copy.raw()) + first, view_.dtype, view_.shape, view_.strides};
  for_each(same.shape, same.strides, [&](std::int64_t offset) { set(same, offset, sentinel_); });
  const ConstView all = copy;
  for (std::int64_t i = 0; i < copy.size(); ++i) {
    const double x = get(all, i);
    if (x != sentinel_ && !(std::isnan(x) && std::isnan(sentinel_))) return false;
  }
  return true;
}

Forward forward(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options) {
  const DType dtype = sums(q.dtype);
  const std::int64_t batch = q.shape[0], n_head = q.shape[1], q_len = q.shape[2], kv_len = k.shape[2];
  Forward f{Tensor({batch, n_head, q_len, v.shape[3]}, dtype), Tensor({batch, n_head, q_len}, dtype),
            Tensor({batch, n_head, q_len, kv_len}, dtype)};
  attention(q, k, v, options, {f.out, f.lse, f.probs});
  return f;
}

Backward backward(const ConstView& q, const ConstView& k, const ConstView& v, const Forward& f, const ConstView& dout,
                  const AttentionOptions& options) {
  const DType dtype = sums(q.dtype);
  Backward b{Tensor(q.shape, dtype), Tensor(k.shape, dtype), Tensor(v.shape, dtype), {}, {}};
  if (options.mask && options.mask.dtype != DType::boolean) b.dmask = Tensor(options.mask.shape, dtype);
  if (options.sinks) b.dsinks = Tensor(options.sinks.shape, dtype);
  attention_backward(q, k, v, f.out, f.lse, dout, options, {b.dq, b.dk, b.dv, b.dmask, b.dsinks});
  return b;
}

std::vector<AttentionPath> paths(DType dtype) {
  if (dtype == DType::f64) return {AttentionPath::reference};
  return {AttentionPath::reference, AttentionPath::tiled};
}

bool same_bits(const ConstView& a, const ConstView& b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  const std::vector<double> x = values(a), y = values(b);
  return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

}  // namespace qkv::test
