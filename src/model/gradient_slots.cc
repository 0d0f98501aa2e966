// SPDX-License-Identifier: Apache-2.0
#include "model/gradient_slots.h"

#include <stdexcept>
#include <string>

#include "qkv/model.h"

namespace qkv {
namespace {

// Matrices of layers get their partial sums piece by piece, in memory of the task at hand, unless a pass ends inside
// the tree.
bool is_layer_matrix(const ParameterInfo& info) { return info.shape.rank() == 2 && info.name.starts_with("layers."); }

void allocate(GradientSum::Impl& sum, std::size_t slot, bool layer_matrices) {
  std::vector<Tensor>& tensors = sum.tensors[slot];
  tensors.resize(sum.infos.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (sum.wanted[i] && !tensors[i].raw() && (layer_matrices || !is_layer_matrix(sum.infos[i])))
      tensors[i] = Tensor(sum.infos[i].shape, sum.dtype);
  if (sum.config.tied_head && sum.wanted[0] && !sum.tied_head[slot].raw())
    sum.tied_head[slot] = Tensor(Dims{sum.config.vocab_size, sum.config.d_model}, sum.dtype);
}

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

template <class T>
ModelParameters<T*> roles_of(const ModelConfig& config, std::vector<Tensor>& tensors, Tensor& tied_head) {
  ModelParameters<T*> roles;
  std::size_t i = 0;
  visit_parameters(config, roles, [&](const std::string&, const Dims&, bool, T*& slot) {
    slot = i < tensors.size() ? static_cast<T*>(tensors[i].raw()) : nullptr;
    ++i;
  });
  if (config.tied_head) roles.head = static_cast<T*>(tied_head.raw());
  return roles;
}

}  // namespace

template <class T>
GradientSlots<T> take_slots(GradientSum::Impl& sum, std::int64_t count) {
  GradientSlots<T> slots;
  const int before = sum.lanes.slots_in_use();
  slots.steps = sum.lanes.take(count);
  const bool across_passes = before > 1 || sum.lanes.slots_in_use() > 1;
  int most = 0;
  for (const SumStep& step : slots.steps) most = std::max(most, step.to);
  for (int slot = 0; slot <= most; ++slot) allocate(sum, static_cast<std::size_t>(slot), slot == 0 || across_passes);
  for (std::size_t slot = 0; slot < kSumSlots; ++slot) {
    slots.roles[slot] = roles_of<T>(sum.config, sum.tensors[slot], sum.tied_head[slot]);
    slots.touched[slot] = &sum.touched[slot];
  }
  return slots;
}

template GradientSlots<float> take_slots(GradientSum::Impl&, std::int64_t);
template GradientSlots<double> take_slots(GradientSum::Impl&, std::int64_t);

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

void GradientSum::begin(std::int64_t sequences) {
  if (sequences < 1)
    throw std::invalid_argument("[gradient_sum] a step expected at least one sequence; found " +
                                std::to_string(sequences));
  impl_->lanes.begin(sequences);
  impl_->finished = false;
  for (std::size_t slot = 1; slot < kSumSlots; ++slot) {  // what an unfinished step may have left
    if (impl_->touched[slot].empty()) continue;
    Tensor& embedding = impl_->tensors[slot][0];
    std::fill_n(static_cast<char*>(embedding.raw()), embedding.bytes(), char{0});
    impl_->touched[slot].clear();
  }
}

const std::vector<Tensor>& GradientSum::finish() {
  if (impl_->lanes.missing() != 0)
    throw std::invalid_argument("[gradient_sum] the step expected " + std::to_string(impl_->lanes.missing()) +
                                " more sequences");
  if (impl_->finished) return impl_->tensors[0];
  if (impl_->config.tied_head && impl_->wanted[0]) add_to(impl_->tensors[0][0], impl_->tied_head[0]);
  impl_->finished = true;
  return impl_->tensors[0];
}

}  // namespace qkv
