// SPDX-License-Identifier: Apache-2.0
// qkv.attention and qkv.attention_steps.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <qkv/attention.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "bind.h"
#include "call.h"
#include "with_options.h"

namespace qkv::python {
namespace {

void require_apart(const char* name, const ConstView& written, const ConstView& read) {
  const auto span = [](const ConstView& view) {
    std::int64_t low = 0, high = 0;
    for (int axis = 0; axis < view.rank(); ++axis) {
      const std::int64_t reach = (view.shape[axis] - 1) * view.strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    const auto at = reinterpret_cast<std::intptr_t>(view.data);
    const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
    return std::pair{at + low * size, at + (high + 1) * size};
  };
  if (!read || element_count(read.shape) == 0 || element_count(written.shape) == 0) return;
  const auto [begin, end] = span(written);
  const auto [other_begin, other_end] = span(read);
  if (begin < other_end && other_begin < end)
    throw std::invalid_argument(std::string("[attention] out must not overlap ") + name + "; found shared memory");
}

// The result that a call writes to: a new array, or the given one.
Result result_of(Call& call, nb::handle like, nb::handle out) {
  if (!is_floating(call.q.view().dtype))
    throw std::invalid_argument("[attention] q must be floating; found " +
                                std::string(dtype_name(call.q.view().dtype)));
  const Dims shape = call.axes.shape({call.heads(), call.q_len(), call.d_v()});  // [..., n_head, q_len, d_v]
  if (out.is_none()) return Result(call.framework, like, shape, call.q.view().dtype);
  Result given("out", out);
  call.axes.add("out", given.view(), 3);
  for (const auto& [name, array] :
       {std::pair{"q", call.q.view()}, {"k", call.k.view()}, {"v", call.v.view()}, {"mask", call.options.mask}})
    require_apart(name, given.view(), array);
  return given;
}

nb::object attention(nb::handle q, nb::handle k, nb::handle v, bool return_lse, bool return_probs, nb::handle out,
                     const nb::kwargs& options) {
  Call call("attention", q, k, v, options);
  const Result read = result_of(call, q, out);
  const LeadingAxes& axes = call.axes;
  Result lse, probs;  // [..., n_head, q_len], [..., n_head, q_len, kv_len]
  if (return_lse) lse = Result(call.framework, q, axes.shape({call.heads(), call.q_len()}), call.sum_type());
  if (return_probs) probs = Result(call.framework, q, call.scores_shape(), call.sum_type());
  for (std::int64_t i = 0; i < axes.calls(); ++i) {
    const ConstView q_i = axes.at(call.q.view(), 3, i), k_i = axes.at(call.k.view(), 3, i),
                    v_i = axes.at(call.v.view(), 3, i);
    const View read_i = axes.at(read.view(), 3, i), lse_i = axes.at(lse.view(), 2, i),
               probs_i = axes.at(probs.view(), 3, i);
    const AttentionOptions options_i = call.options_of(i);
    run(q_i, k_i, may_cut(q_i, k_i, v_i, options_i, {read_i, lse_i, probs_i}), [&](const Part& part) {
      qkv::attention(part.of(q_i), part.of_keys(k_i), part.of_keys(v_i), part.of(options_i),
                     {part.of(read_i), part.of(lse_i), part.of(probs_i)});
    });
  }
  if (!return_lse && !return_probs) return read.object();
  if (!return_probs) return nb::make_tuple(read.object(), lse.object());
  if (!return_lse) return nb::make_tuple(read.object(), probs.object());
  return nb::make_tuple(read.object(), lse.object(), probs.object());
}

nb::object attention_steps(nb::handle q, nb::handle k, nb::handle v, const nb::kwargs& options) {
  const Call call("attention_steps", q, k, v, options);
  const LeadingAxes& axes = call.axes;
  const auto matrix = [&] { return Result(call.framework, q, call.scores_shape(), call.sum_type()); };
  const Result scores = matrix(), softcapped = matrix(), masked = matrix(), probs = matrix();
  for (std::int64_t i = 0; i < axes.calls(); ++i) {
    const nb::gil_scoped_release released;
    qkv::attention_steps(axes.at(call.q.view(), 3, i), axes.at(call.k.view(), 3, i), axes.at(call.v.view(), 3, i),
                         call.options_of(i),
                         {axes.at(scores.view(), 3, i), axes.at(softcapped.view(), 3, i), axes.at(masked.view(), 3, i),
                          axes.at(probs.view(), 3, i)});
  }
  static const nb::handle steps = nb::object(nb::module_::import_("qkv._results").attr("AttentionSteps")).release();
  return steps(scores.object(), softcapped.object(), masked.object(), probs.object());
}

// Mean seconds per call of the C++ function over `count` calls on the same arrays, for scripts/bench_python.py.
double seconds_of_cpp(nb::handle q, nb::handle k, nb::handle v, std::int64_t count, bool return_lse,
                      const nb::kwargs& options) {
  Call call("_seconds_of_cpp", q, k, v, options);
  const Result read = result_of(call, q, nb::none());
  const Result lse(call.framework, q, call.axes.shape({call.heads(), call.q_len()}), call.sum_type());
  const LeadingAxes& axes = call.axes;
  const ConstView q_0 = axes.at(call.q.view(), 3, 0), k_0 = axes.at(call.k.view(), 3, 0),
                  v_0 = axes.at(call.v.view(), 3, 0);
  const AttentionResults results{axes.at(read.view(), 3, 0), return_lse ? axes.at(lse.view(), 2, 0) : View{}, {}};
  const AttentionOptions options_0 = call.options_of(0);
  const nb::gil_scoped_release released;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) qkv::attention(q_0, k_0, v_0, options_0, results);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(std::max<std::int64_t>(count, 1));
}

// An array as qkv sees it, for tests that nothing is copied.
nb::object described(nb::handle object) {
  const Borrowed array("array", object);
  const ConstView& view = array.view();
  nb::list shape, strides;
  for (int axis = 0; axis < view.rank(); ++axis) {
    shape.append(view.shape[axis]);
    strides.append(view.strides[axis]);
  }
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(view.data), std::string(dtype_name(view.dtype)),
                        nb::tuple(shape), nb::tuple(strides));
}

constexpr const char* kAttention = R"(softmax(mask(q k^T * scale)) v over any number of leading axes.

q [..., n_head, q_len, d_k]; k [..., n_kv_head, kv_len, d_k]; v [..., n_kv_head, kv_len, d_v]: NumPy, PyTorch or JAX
arrays in CPU memory, or anything that exports DLPack or the buffer protocol; any strides, all f32, bf16, f16 or f64;
zero-copy. Two axes are [len, d], one head. Query head h uses key head h / (n_head / n_kv_head).

Query i is at position start + i among the keys:
  causal="top_left"      start is 0                       keys up to its position are visible
  causal="bottom_right"  start is kv_len - q_len, from each sequence's own lengths
  causal="start"         start is given, one for all or one per sequence; may be negative
  causal=None            all keys are visible; start is used only by window and alibi
  is_causal=True         same as causal="top_left", as in PyTorch
window (left, right): keys from position - left to position + right, None or -1 for no limit. mask: bool (True: visible)
or floating (added), broadcasts to [..., n_head, q_len, kv_len]. alibi [n_head]: adds -slope * |j - position|.
softcap: scores become softcap * tanh(scores / softcap). sinks [n_head]: a logit in the denominator without a value.
q_lengths, kv_lengths: one per sequence. scale: default 1 / sqrt(d_k). A query without a visible key gives zeros, or
ValueError with require_readable_key.

Returns out [..., n_head, q_len, d_v] of q's type and framework, or a tuple with lse [..., n_head, q_len] and probs
[..., n_head, q_len, kv_len] (f32, or f64 for f64) if requested. out=: an array to write to, which is returned. Raises
ValueError for invalid arguments. Releases the GIL.)";

constexpr const char* kSteps = R"(The intermediate matrices of attention(), for inspection.

AttentionSteps(scores, softcapped, masked, probs), each [..., n_head, q_len, kv_len], f32 (f64 for f64): (q . k) *
scale; after the softcap; with mask and ALiBi added and -inf for masked keys; probabilities. Computed by the reference
path, all in memory.)";

}  // namespace

void bind_attention(nb::module_& m) {
  using nb::arg;
  def_with_options(m, "attention", "q: Array, k: Array, v: Array",
                   "return_lse: bool = False, return_probs: bool = False, out: Array | None = None", "typing.Any",
                   kAttention, &attention, std::array{arg("q"), arg("k"), arg("v")}, arg("return_lse") = false,
                   arg("return_probs") = false, arg("out").none() = nb::none());
  def_with_options(m, "attention_steps", "q: Array, k: Array, v: Array", "", "AttentionSteps", kSteps, &attention_steps,
                   std::array{arg("q"), arg("k"), arg("v")});
  m.def("_seconds_of_cpp", &seconds_of_cpp, arg("q"), arg("k"), arg("v"), arg("count"), nb::kw_only(),
        arg("return_lse") = false, arg("options"), "Mean seconds per call of the C++ function, over count calls.");
  m.def("_set_long_work", &set_long_work, arg("operations"),
        "Sets the number of operations from which a call is split for Ctrl-C; returns the old value.");
  m.def("_described", &described, arg("array"),
        "(address, type, shape, strides in elements) of an array as qkv sees it.");
}

}  // namespace qkv::python
