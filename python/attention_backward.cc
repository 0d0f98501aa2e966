// SPDX-License-Identifier: Apache-2.0
// qkv.attention_backward.
#include <qkv/attention.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bind.h"
#include "call.h"
#include "with_options.h"

namespace qkv::python {
namespace {

// Adds one call's gradient, row-major, to the shared gradient. f32 or f64; `to` has rank 1 or 4.
template <class T>
void add_to(const View& to, const Tensor& from) {
  const T* source = from.data<T>();
  for (std::int64_t i = 0; i < from.size(); ++i) {
    std::int64_t rest = i, at = 0;
    for (int axis = to.rank() - 1; axis >= 0; --axis) {
      at += rest % to.shape[axis] * to.strides[axis];
      rest /= to.shape[axis];
    }
    static_cast<T*>(to.data)[at] += source[i];
  }
}

// Gradient of an input that several calls may share: the result itself for one call, else summed in call order.
class SharedGradient {
 public:
  SharedGradient(const Result& result, std::int64_t calls) : view_(result.view()), sums_(calls > 1 && result.wanted()) {
    if (!sums_) return;
    auto* bytes = static_cast<char*>(view_.data);  // a fresh result is row-major
    std::fill_n(bytes, element_count(view_.shape) * static_cast<std::int64_t>(dtype_size(view_.dtype)), char{0});
  }
  View begin(const View& place) {
    if (!sums_) return place;
    place_ = place;
    part_ = Tensor(place.shape, place.dtype);
    return part_;
  }
  void end() {
    if (!sums_) return;
    if (place_.dtype == DType::f64) {
      add_to<double>(place_, part_);
    } else {
      add_to<float>(place_, part_);
    }
  }

 private:
  View view_, place_;
  Tensor part_;
  bool sums_;
};

nb::object attention_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle dout,
                              bool want_dmask, const nb::kwargs& options) {
  Call call("attention_backward", q, k, v, options);
  LeadingAxes& axes = call.axes;
  const Borrowed read("out", out), log_sums("lse", lse), gradient("dout", dout);
  axes.add("out", read.view(), 3);
  axes.add("lse", log_sums.view(), 2);
  axes.add("dout", gradient.view(), 3);
  const DType dtype = call.q.view().dtype;
  if (!is_floating(dtype))
    throw std::invalid_argument("[attention] q must be floating; found " + std::string(dtype_name(dtype)));
  if (want_dmask && (!call.options.mask || !is_floating(call.options.mask.dtype)))
    throw std::invalid_argument("[attention] dmask needs a floating mask; found none");
  const Result dq(call.framework, q, call.q.view().shape, dtype), dk(call.framework, q, call.k.view().shape, dtype),
      dv(call.framework, q, call.v.view().shape, dtype);
  Result dmask, dsinks;  // shaped like the mask, [n_head]
  if (want_dmask) dmask = Result(call.framework, q, call.options.mask.shape, call.sum_type());
  if (call.options.sinks) dsinks = Result(call.framework, q, call.options.sinks.shape, call.sum_type());
  SharedGradient of_mask(dmask, axes.calls()), of_sinks(dsinks, axes.calls());
  const bool shared = dmask.wanted() || dsinks.wanted();
  for (std::int64_t i = 0; i < axes.calls(); ++i) {
    const ConstView q_i = axes.at(call.q.view(), 3, i), k_i = axes.at(call.k.view(), 3, i),
                    v_i = axes.at(call.v.view(), 3, i), read_i = axes.at(read.view(), 3, i),
                    lse_i = axes.at(log_sums.view(), 2, i), dout_i = axes.at(gradient.view(), 3, i);
    const View dq_i = axes.at(dq.view(), 3, i), dk_i = axes.at(dk.view(), 3, i), dv_i = axes.at(dv.view(), 3, i);
    const View dmask_i = dmask.wanted() ? of_mask.begin(axes.at(dmask.view(), 3, i)) : View{};
    const View dsinks_i = dsinks.wanted() ? of_sinks.begin(dsinks.view()) : View{};
    const AttentionOptions options_i = call.options_of(i);
    const bool cut = !shared && may_cut(q_i, k_i, v_i, options_i, {read_i, lse_i, dout_i});
    run(q_i, k_i, cut, [&](const Part& part) {
      qkv::attention_backward(part.of(q_i), part.of_keys(k_i), part.of_keys(v_i), part.of(read_i), part.of(lse_i),
                              part.of(dout_i), part.of(options_i),
                              {part.of(dq_i), part.of_keys(dk_i), part.of_keys(dv_i), dmask_i, dsinks_i});
    });
    of_mask.end();
    of_sinks.end();
  }
  static const nb::handle gradients =
      nb::object(nb::module_::import_("qkv._results").attr("AttentionGradients")).release();
  return gradients(dq.object(), dk.object(), dv.object(), dmask.object(), dsinks.object());
}

constexpr const char* kBackward = R"(The gradients of attention(): AttentionGradients(dq, dk, dv, dmask, dsinks).

out and lse are the results of attention() for the same arrays and options; dout is the gradient with respect to out.
dq, dk and dv have the shapes and type of q, k and v. dmask (with want_dmask and a floating mask) and dsinks (with
sinks) are f32, or f64 for f64, summed over broadcast axes; otherwise None.)";

}  // namespace

void bind_attention_backward(nb::module_& m) {
  using nb::arg;
  def_with_options(m, "attention_backward", "q: Array, k: Array, v: Array, out: Array, lse: Array, dout: Array",
                   "want_dmask: bool = False", "AttentionGradients", kBackward, &attention_backward,
                   std::array{arg("q"), arg("k"), arg("v"), arg("out"), arg("lse"), arg("dout")},
                   arg("want_dmask") = false);
}

}  // namespace qkv::python
