// SPDX-License-Identifier: Apache-2.0
#include "model/gradient_slots.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/parallel.h"
#include "qkv/model.h"

namespace qkv {
namespace {

void allocate(GradientSum::Impl& sum, std::size_t slot, bool layer_matrices) {
  std::vector<Tensor>& tensors = sum.tensors[slot];
  tensors.resize(sum.infos.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (sum.wanted[i] && !tensors[i].raw() && (layer_matrices || !is_layer_matrix(sum.infos[i])))
      tensors[i] = Tensor(sum.infos[i].shape, sum.dtype);
  if (sum.config.tied_head && sum.wanted[0] && !sum.tied_head[slot].raw())
    sum.tied_head[slot] = Tensor(Dims{sum.config.vocab_size, sum.config.d_model}, sum.dtype);
}

std::string text_of(const LaneRange& lanes) {
  return "lanes " + std::to_string(lanes.first) + " to " + std::to_string(lanes.first + lanes.count - 1);
}

}  // namespace

void add_to(Tensor& to, const Tensor& from) {
  const auto add = [&]<class T>(T* a, const T* b) {
    parallel_ranges(to.size(), std::int64_t{1} << 16, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) a[i] += b[i];
    });
  };
  if (to.dtype() == DType::f64)
    add(to.data<double>(), from.data<double>());
  else
    add(to.data<float>(), from.data<float>());
}

bool is_layer_matrix(const ParameterInfo& info) { return kind_of(info.role) == ParameterKind::matrix; }

SlotPointers GradientSlots::of(int number) const {
  SlotPointers pointers{};
  for (std::size_t slot = 0; number >= 0 && slot < pointers.size(); ++slot) {
    std::vector<Tensor>& tensors = sum->tensors[slot];
    if (!tensors.empty()) pointers[slot] = tensors[static_cast<std::size_t>(number)].raw();
  }
  return pointers;
}

SlotPointers GradientSlots::tied_head() const {
  SlotPointers pointers{};
  for (std::size_t slot = 0; slot < pointers.size(); ++slot) pointers[slot] = sum->tied_head[slot].raw();
  return pointers;
}

std::array<std::vector<std::int32_t>*, kSumSlots> GradientSlots::touched() const {
  std::array<std::vector<std::int32_t>*, kSumSlots> lists{};
  for (std::size_t slot = 0; slot < lists.size(); ++slot) lists[slot] = &sum->touched[slot];
  return lists;
}

GradientSlots take_slots(GradientSum::Impl& sum, std::int64_t count) {
  GradientSlots slots;
  PassSlots pass = sum.lanes.pass(count);
  slots.steps = std::move(pass.steps);
  slots.sum = &sum;
  for (int slot = 0; slot < pass.slots; ++slot) allocate(sum, static_cast<std::size_t>(slot), slot == 0 || pass.whole);
  return slots;
}

GradientSum::GradientSum(const Model& model) : GradientSum(model, std::vector<bool>(model.infos().size(), true)) {}

GradientSum::GradientSum(const Model& model, std::vector<bool> wanted) : impl_(std::make_unique<Impl>()) {
  if (wanted.size() != model.infos().size())
    throw std::invalid_argument("[gradient_sum] expected a choice for each of the " +
                                std::to_string(model.infos().size()) + " parameters; found " +
                                std::to_string(wanted.size()));
  impl_->config = model.config();
  impl_->dtype = model.dtype();
  impl_->infos = model.infos();
  impl_->wanted = std::move(wanted);
}
GradientSum::~GradientSum() = default;
GradientSum::GradientSum(GradientSum&&) noexcept = default;
GradientSum& GradientSum::operator=(GradientSum&&) noexcept = default;

LaneRange lanes_of(int rank, int size) {
  if (size < 1 || size > kLanes || kLanes % size != 0 || rank < 0 || rank >= size)
    throw std::invalid_argument("[gradient_sum] expected 1, 2, 4 or 8 processes and a rank below that; found rank " +
                                std::to_string(rank) + " of " + std::to_string(size));
  return {rank * (kLanes / size), kLanes / size};
}

void GradientSum::begin(std::int64_t sequences, const LaneRange& lanes) {
  if (sequences < 1)
    throw std::invalid_argument("[gradient_sum] expected a step of at least one sequence; found " +
                                std::to_string(sequences));
  if (lanes.count < 1 || kLanes % lanes.count != 0 || lanes.first < 0 || lanes.first >= kLanes ||
      lanes.first % lanes.count != 0)
    throw std::invalid_argument(
        "[gradient_sum] expected 1, 2, 4 or 8 lanes starting at a multiple of their number; found " + text_of(lanes));
  impl_->lanes.begin(sequences, lanes);
  impl_->covered = lanes;
  impl_->empty = impl_->lanes.missing() == 0;
  impl_->losses.clear();
  impl_->finished = false;
  for (std::size_t slot = 1; slot < kSumSlots; ++slot) {  // may be left over from an unfinished step
    if (impl_->touched[slot].empty()) continue;
    Tensor& embedding = impl_->tensors[slot][0];
    std::fill_n(static_cast<char*>(embedding.raw()), embedding.bytes(), char{0});
    impl_->touched[slot].clear();
  }
}

const std::vector<double>& GradientSum::losses() const noexcept { return impl_->losses; }

GradientSum::Partial GradientSum::partial() {
  Impl& sum = *impl_;
  if (sum.lanes.missing() != 0)
    throw std::invalid_argument("[gradient_sum] the step expected " + std::to_string(sum.lanes.missing()) +
                                " more sequences");
  allocate(sum, 0, true);
  Partial partial{sum.covered, sum.empty, {}};
  for (std::size_t i = 0; i < sum.infos.size(); ++i)
    if (sum.wanted[i]) partial.tensors.push_back(&sum.tensors[0][i]);
  if (sum.tied_head[0].raw()) partial.tensors.push_back(&sum.tied_head[0]);
  return partial;
}

void GradientSum::add(const Partial& sibling) {
  const Partial own = partial();
  bool fits = sibling.lanes == LaneRange{own.lanes.first ^ own.lanes.count, own.lanes.count} &&
              own.lanes.count < kLanes && own.tensors.size() == sibling.tensors.size();
  for (std::size_t i = 0; fits && i < own.tensors.size(); ++i)
    fits = own.tensors[i]->shape() == sibling.tensors[i]->shape() &&
           own.tensors[i]->dtype() == sibling.tensors[i]->dtype();
  if (!fits)
    throw std::invalid_argument("[gradient_sum] expected the sum of the same parameters over the sibling of " +
                                text_of(own.lanes) + "; found " + text_of(sibling.lanes));
  for (std::size_t i = 0; i < own.tensors.size() && !sibling.empty; ++i) {
    if (own.empty)
      std::memcpy(own.tensors[i]->raw(), sibling.tensors[i]->raw(), own.tensors[i]->bytes());
    else
      add_to(*own.tensors[i], *sibling.tensors[i]);
  }
  impl_->covered = {std::min(own.lanes.first, sibling.lanes.first), 2 * own.lanes.count};
  impl_->empty = own.empty && sibling.empty;
}

const std::vector<Tensor>& GradientSum::finish() {
  if (impl_->finished) return impl_->tensors[0];
  const Partial whole = partial();
  if (whole.lanes.count != kLanes)
    throw std::invalid_argument("[gradient_sum] expected the sum of all " + std::to_string(kLanes) + " lanes; found " +
                                text_of(whole.lanes));
  if (impl_->tied_head[0].raw()) add_to(impl_->tensors[0][0], impl_->tied_head[0]);
  impl_->finished = true;
  return impl_->tensors[0];
}

}  // namespace qkv
