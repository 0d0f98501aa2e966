// SPDX-License-Identifier: Apache-2.0
#include "leading.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <string>

namespace qkv::python {
namespace {

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[attention] " + expected + "; found " + found);
}

Dims part(const Dims& dims, int begin, int end) {
  Dims result;
  if (begin < end) result = Dims(std::span(dims.begin() + begin, dims.begin() + end));
  return result;
}

Dims joined(const Dims& a, const Dims& b) {
  std::array<std::int64_t, 2 * kMaxRank> all{};
  std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), all.begin()));
  return Dims(std::span<const std::int64_t>(all.data(), std::size_t(a.rank() + b.rank())));
}

// The common stride of axes that can be merged into one; 0 if all have size 1.
std::int64_t joint_stride(const Dims& size, const Dims& stride, int begin) {
  for (int axis = size.rank() - 1; axis >= begin; --axis) {
    if (size[axis] != 1) return stride[axis];
  }
  return 0;
}

}  // namespace

LeadingAxes::LeadingAxes(const ConstView& q) {
  if (q.rank() < 2) fail("q must be [..., n_head, q_len, d_k] or [q_len, d_k]", "shape " + to_string(q.shape));
  headless_ = q.rank() == 2;
  if (!headless_) lead_ = part(q.shape, 0, q.rank() - 3);
  batch_ = element_count(lead_);
}

LeadingAxes::Along LeadingAxes::along(const ConstView& view, int own) const {
  Along result{lead_, lead_};
  const int missing = lead_.rank() + own - view.rank();
  for (int axis = 0; axis < lead_.rank(); ++axis) {
    const bool there = axis >= missing;
    result.size[axis] = there ? view.shape[axis - missing] : 1;
    result.stride[axis] = there && result.size[axis] != 1 ? view.strides[axis - missing] : 0;
  }
  return result;
}

void LeadingAxes::add(const char* name, const ConstView& view, int own) {
  const int expected = lead_.rank() + own - (headless_ ? 1 : 0);
  if (view.rank() != expected || !(part(view.shape, 0, lead_.rank()) == lead_)) {
    fail(std::string(name) + " must have the leading axes of q, " + to_string(lead_) + ", and " +
             std::to_string(expected - lead_.rank()) + " more",
         "shape " + to_string(view.shape));
  }
  narrow(along(view, own));
}

void LeadingAxes::add_broadcast(const char* name, const ConstView& view, int own) {
  bool fits = view.rank() <= lead_.rank() + own;
  const Along axes = fits ? along(view, own) : Along{};
  for (int axis = 0; fits && axis < lead_.rank(); ++axis) fits = axes.size[axis] == 1 || axes.size[axis] == lead_[axis];
  if (!fits) {
    fail(std::string(name) + " must broadcast to the leading axes of q, " + to_string(lead_) + ", and " +
             std::to_string(own) + " more",
         "shape " + to_string(view.shape));
  }
  narrow(axes);
}

// Moves the split to the right until the axes after it have a common stride in this array too, or are all broadcast.
void LeadingAxes::narrow(const Along& axes) {
  if (element_count(lead_) == 0) return;  // nothing to compute, but options are still checked
  std::int64_t size = 1, stride = 0;
  bool broadcast = false;
  for (int axis = lead_.rank() - 1; axis >= split_; --axis) {
    if (lead_[axis] == 1) continue;
    const bool repeats = axes.size[axis] == 1;
    if (size != 1 && (repeats != broadcast || (!repeats && axes.stride[axis] != size * stride))) {
      split_ = axis + 1;
      break;
    }
    if (size == 1) {
      broadcast = repeats;
      stride = axes.stride[axis];
    }
    size *= lead_[axis];
  }
  calls_ = element_count(part(lead_, 0, split_));
  batch_ = element_count(part(lead_, split_, lead_.rank()));
}

View LeadingAxes::at(const View& view, int own, std::int64_t call) const {
  if (!view) return view;
  const Along axes = along(view, own);
  std::int64_t offset = 0;
  for (int axis = split_ - 1; axis >= 0; --axis) {
    if (axes.size[axis] != 1) offset += call % lead_[axis] * axes.stride[axis];
    call /= lead_[axis];
  }
  const Dims inner = part(axes.size, split_, lead_.rank());
  const std::int64_t places = element_count(inner);
  const Dims batch{batch_ == 0 && places != 1 ? 0 : places}, batch_stride{joint_stride(axes.size, axes.stride, split_)};
  // Missing own axes (a mask of low rank, an array without heads) have size 1.
  const int first = std::max(0, view.rank() - own), there = view.rank() - first;
  Dims shape, strides;
  shape = batch;
  strides = batch_stride;
  for (int axis = there; axis < own; ++axis) {
    shape = joined(shape, Dims{1});
    strides = joined(strides, Dims{0});
  }
  shape = joined(shape, part(view.shape, first, view.rank()));
  strides = joined(strides, part(view.strides, first, view.rank()));
  auto* data = static_cast<char*>(view.data) + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
  return {data, view.dtype, shape, strides};
}

ConstView LeadingAxes::at(const ConstView& view, int own, std::int64_t call) const {
  return at(View{const_cast<void*>(view.data), view.dtype, view.shape, view.strides}, own, call);
}

std::vector<std::int64_t> LeadingAxes::at(const char* name, const std::vector<std::int64_t>& values,
                                          std::int64_t call) const {
  if (calls_ <= 1 || values.size() <= 1) return values;
  if (static_cast<std::int64_t>(values.size()) != calls_ * batch_) {
    fail(std::string(name) + " must have one number per sequence (" + std::to_string(calls_ * batch_) + ")",
         std::to_string(values.size()));
  }
  const auto begin = values.begin() + call * batch_;
  return {begin, begin + batch_};
}

Dims LeadingAxes::shape(std::initializer_list<std::int64_t> own) const {
  const Dims all(own);
  return joined(lead_, headless_ ? part(all, 1, all.rank()) : all);
}

}  // namespace qkv::python
