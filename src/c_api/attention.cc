// SPDX-License-Identifier: Apache-2.0
#include "qkv/attention.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c_api/status.h"
#include "qkv/attention_members.h"

namespace {

using qkv::c_api::guarded;
using qkv::c_api::require_given;

std::invalid_argument refusal(const char* where, const char* name, const char* expected, std::int64_t found) {
  return std::invalid_argument(std::string("[") + where + "] expected " + name + " " + expected + "; found " +
                               std::to_string(found));
}

// The view of an optional array; empty if not given.
qkv::View view_of(const qkv_array* array, const char* where, const char* name) {
  if (array == nullptr || array->data == nullptr) return {};
  if (array->dtype < QKV_F32 || array->dtype > QKV_BOOL)
    throw refusal(where, name, "with a valid qkv_dtype", array->dtype);
  if (array->rank < 0 || array->rank > QKV_MAX_RANK) throw refusal(where, name, "of rank 0 to 8", array->rank);
  const auto rank = static_cast<std::size_t>(array->rank);
  return {array->data, static_cast<qkv::DType>(array->dtype), qkv::Dims(std::span(array->shape, rank)),
          qkv::Dims(std::span(array->strides, rank))};
}

qkv::View needed_view(const qkv_array* array, const char* where, const char* name) {
  require_given(array, where, name);
  require_given(array->data, where, name);
  return view_of(array, where, name);
}

// Converts a C option to the member of qkv::AttentionOptions.
struct FromC {
  const char* where;
  std::int64_t batch, n_start;

  void operator()(const qkv::OptionText&, const int& from, bool& to) const { to = from != 0; }
  void operator()(const qkv::OptionText&, const qkv_alignment& from, qkv::Alignment& to) const {
    to = static_cast<qkv::Alignment>(from);
  }
  void operator()(const qkv::OptionText&, const std::int64_t& from, std::int64_t& to) const { to = from; }
  void operator()(const qkv::OptionText&, const double& from, double& to) const { to = from; }
  void operator()(const qkv::OptionText&, const double& from, qkv::AttentionDropout& to) const { to.p = from; }
  void operator()(const qkv::OptionText&, const double* const& from, std::optional<double>& to) const {
    if (from != nullptr) to = *from;
  }
  void operator()(const qkv::OptionText& option, const qkv_array* const& from, qkv::ConstView& to) const {
    to = view_of(from, where, option.name);
  }
  // One number per sequence; for start, n_start.
  void operator()(const qkv::OptionText& option, const std::int64_t* const& from, std::vector<std::int64_t>& to) const {
    const std::int64_t count = std::string_view(option.name) == "start" ? n_start : batch;
    if (from != nullptr) to.assign(from, from + count);
  }
};

qkv::AttentionOptions options_of(const qkv_attention_options* given, const qkv::View& q, const char* where) {
  qkv::AttentionOptions options;
  if (given == nullptr) return options;
  if (given->alignment < QKV_ALIGN_NONE || given->alignment > QKV_ALIGN_START)
    throw refusal(where, "alignment", "to be a qkv_alignment", given->alignment);
  // Lengths have one number per sequence; a q without a batch axis is rejected later, with its shape.
  const std::int64_t batch = q.rank() > 0 ? std::max<std::int64_t>(q.shape[0], 0) : 0;
  if (given->start != nullptr && given->n_start != 1 && given->n_start != static_cast<std::size_t>(batch))
    throw refusal(where, "n_start", "to be 1 or the batch size", static_cast<std::int64_t>(given->n_start));
  const FromC convert{where, batch, static_cast<std::int64_t>(given->n_start)};
  qkv::for_each_option(convert, *given, options);
  options.dropout.seed = given->dropout_seed;
  return options;
}

}  // namespace

extern "C" {

qkv_array qkv_contiguous(void* data, qkv_dtype dtype, int rank, const int64_t* shape) {
  qkv_array array{};
  array.data = data;
  array.dtype = dtype;
  array.rank = rank;
  if (rank < 0 || rank > QKV_MAX_RANK || (rank > 0 && shape == nullptr)) {
    array.rank = -1;
    return array;
  }
  std::uint64_t stride = 1;  // may wrap for absurd shapes, which are rejected later by their element count
  for (int axis = rank - 1; axis >= 0; --axis) {
    array.shape[axis] = shape[axis];
    array.strides[axis] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(shape[axis]);
  }
  return array;
}

void qkv_attention_options_init(qkv_attention_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->window_left = -1;
  options->window_right = -1;
}

qkv_status qkv_attention(const qkv_array* q, const qkv_array* k, const qkv_array* v,
                         const qkv_attention_options* options, const qkv_array* out, const qkv_array* lse,
                         const qkv_array* probs) {
  return guarded([&] {
    constexpr const char* kWhere = "qkv_attention";
    const qkv::View q_view = needed_view(q, kWhere, "q");
    qkv::attention(q_view, needed_view(k, kWhere, "k"), needed_view(v, kWhere, "v"),
                   options_of(options, q_view, kWhere),
                   {.out = view_of(out, kWhere, "out"),
                    .lse = view_of(lse, kWhere, "lse"),
                    .probs = view_of(probs, kWhere, "probs")});
  });
}

qkv_status qkv_attention_backward(const qkv_array* q, const qkv_array* k, const qkv_array* v, const qkv_array* out,
                                  const qkv_array* lse, const qkv_array* dout, const qkv_attention_options* options,
                                  const qkv_attention_gradients* gradients) {
  return guarded([&] {
    constexpr const char* kWhere = "qkv_attention_backward";
    require_given(gradients, kWhere, "gradients");
    const qkv::View q_view = needed_view(q, kWhere, "q");
    qkv::attention_backward(q_view, needed_view(k, kWhere, "k"), needed_view(v, kWhere, "v"),
                            needed_view(out, kWhere, "out"), needed_view(lse, kWhere, "lse"),
                            needed_view(dout, kWhere, "dout"), options_of(options, q_view, kWhere),
                            {.dq = view_of(gradients->dq, kWhere, "dq"),
                             .dk = view_of(gradients->dk, kWhere, "dk"),
                             .dv = view_of(gradients->dv, kWhere, "dv"),
                             .dmask = view_of(gradients->dmask, kWhere, "dmask"),
                             .dsinks = view_of(gradients->dsinks, kWhere, "dsinks")});
  });
}

}  // extern "C"
