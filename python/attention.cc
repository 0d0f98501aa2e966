// SPDX-License-Identifier: Apache-2.0
// qkv.attention and qkv.attention_backward.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <qkv/attention.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "array.h"
#include "bind.h"
#include "leading.h"

namespace qkv::python {
namespace {

// The options as Python gave them, and the arrays that they point into.
struct Options {
  nb::handle causal, start, mask, scale, window, alibi, sinks, q_lengths, kv_lengths, dropout;
  double softcap = 0;
  bool require_readable_key = false;
};

[[noreturn]] void fail(const std::string& expected, nb::handle found) {
  throw std::invalid_argument("[attention] " + expected + "; found " + nb::cast<std::string>(nb::repr(found)));
}

Alignment alignment(nb::handle causal, bool start) {
  if (causal.is_none()) return start ? Alignment::start : Alignment::none;
  if (nb::isinstance<nb::str>(causal)) {
    const std::string name = nb::cast<std::string>(causal);
    if (name == "top_left") return Alignment::top_left;
    if (name == "bottom_right") return Alignment::bottom_right;
    if (name == "start") return Alignment::start;
  }
  fail("causal must be None, 'top_left', 'bottom_right' or 'start'", causal);
}

std::int64_t window_side(nb::handle side) {
  if (side.is_none()) return -1;
  if (!PyIndex_Check(side.ptr())) fail("window must be (left, right), whole numbers or None for no limit", side);
  const long long value = PyLong_AsLongLong(nb::steal(PyNumber_Index(side.ptr())).ptr());
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    fail("window must be of whole numbers from -1 that fit 64 bits", side);
  }
  return value;
}

void set_window(nb::handle window, AttentionOptions& options) {
  if (window.is_none()) return;
  if (!nb::isinstance<nb::tuple>(window) && !nb::isinstance<nb::list>(window))
    fail("window must be (left, right)", window);
  if (nb::len(window) != 2) fail("window must be (left, right)", window);
  options.window_left = window_side(window[0]);
  options.window_right = window_side(window[1]);
}

void set_dropout(nb::handle dropout, AttentionDropout& to) {
  if (dropout.is_none()) return;
  const auto [p, seed] = nb::cast<std::pair<double, std::uint64_t>>(dropout);
  to.p = p;
  to.seed = seed;
}

// What is settled before the first call: the arrays, their leading axes and the options of all calls.
struct Call {
  Borrowed q, k, v, mask, alibi, sinks;
  AttentionOptions options;
  LeadingAxes axes;
  Framework framework;

  Call(nb::handle q_array, nb::handle k_array, nb::handle v_array, const Options& given)
      : q("q", q_array),
        k("k", k_array),
        v("v", v_array),
        mask(borrow_optional("mask", given.mask)),
        alibi(borrow_optional("alibi", given.alibi)),
        sinks(borrow_optional("sinks", given.sinks)),
        axes(q.view()),
        framework(framework_of(q_array)) {
    axes.add("q", q.view(), 3);
    axes.add("k", k.view(), 3);
    axes.add("v", v.view(), 3);
    if (mask.given()) axes.add_broadcast("mask", mask.view(), 3);
    options.alignment = alignment(given.causal, !given.start.is_none());
    options.causal = !given.causal.is_none();
    options.start = integers("start", given.start);
    options.q_lengths = integers("q_lengths", given.q_lengths);
    options.kv_lengths = integers("kv_lengths", given.kv_lengths);
    set_window(given.window, options);
    if (!given.scale.is_none()) {
      options.scale = PyFloat_AsDouble(given.scale.ptr());
      if (PyErr_Occurred()) throw nb::python_error();
    }
    options.softcap = given.softcap;
    options.alibi_slopes = alibi.view();
    options.sinks = sinks.view();
    options.require_readable_key = given.require_readable_key;
    set_dropout(given.dropout, options.dropout);
    if (!given.start.is_none() && given.causal.is_none() && given.window.is_none() && given.alibi.is_none()) {
      throw std::invalid_argument("[attention] start is used by causal='start', a window or alibi; found none of them");
    }
    if (given.window.is_none() && given.alibi.is_none() && given.causal.is_none()) options.alignment = Alignment::none;
  }

  AttentionOptions options_of(std::int64_t call) const {
    AttentionOptions mine = options;
    mine.mask = axes.at(mask.view(), 3, call);
    mine.start = axes.at("start", options.start, call);
    mine.q_lengths = axes.at("q_lengths", options.q_lengths, call);
    mine.kv_lengths = axes.at("kv_lengths", options.kv_lengths, call);
    mine.dropout.first_sequence = call * axes.batch();
    return mine;
  }

  DType sum_type() const { return q.view().dtype == DType::f64 ? DType::f64 : DType::f32; }
  std::int64_t heads() const { return q.view().rank() == 2 ? 1 : q.view().shape[q.view().rank() - 3]; }
  std::int64_t q_len() const { return q.view().shape[q.view().rank() - 2]; }
  std::int64_t kv_len() const { return k.view().shape[k.view().rank() - 2]; }
  std::int64_t d_v() const { return v.view().shape[v.view().rank() - 1]; }
};

// Ctrl-C between two calls.
void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

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
    throw std::invalid_argument(std::string("[attention] out must share no memory with ") + name +
                                "; found that it does");
}

nb::object attention(nb::handle q, nb::handle k, nb::handle v, nb::handle causal, nb::handle start, nb::handle mask,
                     nb::handle scale, double softcap, nb::handle window, nb::handle alibi, nb::handle sinks,
                     nb::handle q_lengths, nb::handle kv_lengths, bool require_readable_key, bool return_lse,
                     bool return_probs, nb::handle out, nb::handle dropout) {
  Call call(q, k, v,
            {causal, start, mask, scale, window, alibi, sinks, q_lengths, kv_lengths, dropout, softcap,
             require_readable_key});
  LeadingAxes& axes = call.axes;
  const Dims shape = axes.shape({call.heads(), call.q_len(), call.d_v()});  // [..., n_head, q_len, d_v]
  if (!is_floating(call.q.view().dtype))
    throw std::invalid_argument("[attention] q must be floating; found " +
                                std::string(dtype_name(call.q.view().dtype)));
  const Result read = out.is_none() ? Result(call.framework, q, shape, call.q.view().dtype) : Result("out", out);
  if (!out.is_none()) {
    axes.add("out", read.view(), 3);
    for (const auto& [name, array] : {std::pair{"q", &call.q}, {"k", &call.k}, {"v", &call.v}, {"mask", &call.mask}})
      require_apart(name, read.view(), array->view());
  }
  Result lse, probs;  // [..., n_head, q_len], [..., n_head, q_len, kv_len]
  if (return_lse) lse = Result(call.framework, q, axes.shape({call.heads(), call.q_len()}), call.sum_type());
  if (return_probs)
    probs = Result(call.framework, q, axes.shape({call.heads(), call.q_len(), call.kv_len()}), call.sum_type());
  for (std::int64_t i = 0; i < axes.calls(); ++i) {
    {
      const nb::gil_scoped_release released;
      qkv::attention(axes.at(call.q.view(), 3, i), axes.at(call.k.view(), 3, i), axes.at(call.v.view(), 3, i),
                     call.options_of(i),
                     {axes.at(read.view(), 3, i), axes.at(lse.view(), 2, i), axes.at(probs.view(), 3, i)});
    }
    check_signals();
  }
  if (!return_lse && !return_probs) return read.object();
  if (!return_probs) return nb::make_tuple(read.object(), lse.object());
  if (!return_lse) return nb::make_tuple(read.object(), probs.object());
  return nb::make_tuple(read.object(), lse.object(), probs.object());
}

// Adds one call's gradient, row-major, to what calls share. f32 or f64, to: rank 1 or 4.
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

// A gradient of what several calls may read: the result itself where there is one call, else summed in their order.
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
                              nb::handle causal, nb::handle start, nb::handle mask, nb::handle scale, double softcap,
                              nb::handle window, nb::handle alibi, nb::handle sinks, nb::handle q_lengths,
                              nb::handle kv_lengths, bool require_readable_key, bool want_dmask, nb::handle dropout) {
  Call call(q, k, v,
            {causal, start, mask, scale, window, alibi, sinks, q_lengths, kv_lengths, dropout, softcap,
             require_readable_key});
  LeadingAxes& axes = call.axes;
  const Borrowed read("out", out), log_sums("lse", lse), gradient("dout", dout);
  axes.add("out", read.view(), 3);
  axes.add("lse", log_sums.view(), 2);
  axes.add("dout", gradient.view(), 3);
  const DType dtype = call.q.view().dtype;
  if (!is_floating(dtype))
    throw std::invalid_argument("[attention] q must be floating; found " + std::string(dtype_name(dtype)));
  if (want_dmask && (!call.mask.given() || !is_floating(call.mask.view().dtype)))
    throw std::invalid_argument("[attention] dmask needs a floating mask; found none");
  const Result dq(call.framework, q, call.q.view().shape, dtype), dk(call.framework, q, call.k.view().shape, dtype),
      dv(call.framework, q, call.v.view().shape, dtype);
  Result dmask, dsinks;  // as the mask, [n_head]
  if (want_dmask) dmask = Result(call.framework, q, call.mask.view().shape, call.sum_type());
  if (call.sinks.given()) dsinks = Result(call.framework, q, call.sinks.view().shape, call.sum_type());
  SharedGradient of_mask(dmask, axes.calls()), of_sinks(dsinks, axes.calls());
  for (std::int64_t i = 0; i < axes.calls(); ++i) {
    {
      const nb::gil_scoped_release released;
      const View mask_part = dmask.wanted() ? of_mask.begin(axes.at(dmask.view(), 3, i)) : View{};
      const View sinks_part = dsinks.wanted() ? of_sinks.begin(dsinks.view()) : View{};
      qkv::attention_backward(
          axes.at(call.q.view(), 3, i), axes.at(call.k.view(), 3, i), axes.at(call.v.view(), 3, i),
          axes.at(read.view(), 3, i), axes.at(log_sums.view(), 2, i), axes.at(gradient.view(), 3, i),
          call.options_of(i),
          {axes.at(dq.view(), 3, i), axes.at(dk.view(), 3, i), axes.at(dv.view(), 3, i), mask_part, sinks_part});
      of_mask.end();
      of_sinks.end();
    }
    check_signals();
  }
  static const nb::handle gradients =
      nb::object(nb::module_::import_("qkv._results").attr("AttentionGradients")).release();
  return gradients(dq.object(), dk.object(), dv.object(), dmask.object(), dsinks.object());
}

// What was read of an array, for tests of what is and is not copied.
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

q [..., n_head, q_len, d_k]; k [..., n_kv_head, kv_len, d_k]; v [..., n_kv_head, kv_len, d_v]; arrays of NumPy, PyTorch
or JAX in this processor's memory, or whatever DLPack or the buffer protocol show, of any strides, all f32, bf16, f16 or
f64; they are read where they lie. Two axes are [len, d], one head. Query head h reads key head h / (n_head / n_kv_head).

Query i stands at position start + i among the keys:
  causal="top_left"      start is 0                       it reads the keys up to its position
  causal="bottom_right"  start is kv_len - q_len, of each sequence's own lengths
  causal="start"         start is given, one or one a sequence; may be negative
  causal=None            it reads all keys; start serves a window or ALiBi alone
window (left, right): keys from position - left to position + right, None or -1 for no limit. mask: bool (True may be
read) or floating (added), broadcasts to [..., n_head, q_len, kv_len]. alibi [n_head]: - slope * |j - position| is added.
softcap: scores become softcap * tanh(scores / softcap). sinks [n_head]: a logit in the denominator that reads no value.
q_lengths, kv_lengths: one a sequence. scale: 1 / sqrt(d_k) unless given. A row with nothing to read gives zeros, or
ValueError with require_readable_key.

Returns out [..., n_head, q_len, d_v] of q's type and framework, or a tuple with lse [..., n_head, q_len] and probs
[..., n_head, q_len, kv_len] (f32, or f64 for f64) if asked for. out=: an array to write to, which is returned. ValueError
for what does not fit. The GIL is released.)";

constexpr const char* kBackward = R"(The gradients of attention(): AttentionGradients(dq, dk, dv, dmask, dsinks).

out and lse are what attention() returned for the same arrays and options, dout is the gradient with respect to out.
dq, dk and dv have the shapes and the type of q, k and v; dmask (with want_dmask, of a floating mask) and dsinks (where
there are sinks) are f32, or f64 for f64, summed over the axes that were broadcast; None otherwise.)";

}  // namespace

void bind_attention(nb::module_& m) {
  using nb::arg;
  m.def(
      "attention", &attention, arg("q"), arg("k"), arg("v"), nb::kw_only(), arg("causal").none() = nb::none(),
      arg("start").none() = nb::none(), arg("mask").none() = nb::none(), arg("scale").none() = nb::none(),
      arg("softcap") = 0.0, arg("window").none() = nb::none(), arg("alibi").none() = nb::none(),
      arg("sinks").none() = nb::none(), arg("q_lengths").none() = nb::none(), arg("kv_lengths").none() = nb::none(),
      arg("require_readable_key") = false, arg("return_lse") = false, arg("return_probs") = false,
      arg("out").none() = nb::none(), arg("_dropout").none() = nb::none(),
      nb::sig("def attention(q: Array, k: Array, v: Array, *, causal: typing.Literal['top_left', 'bottom_right', "
              "'start'] | None = None, start: Integers | None = None, mask: Array | None = None, scale: float | None "
              "= None, softcap: float = 0.0, window: tuple[int | None, int | None] | None = None, alibi: Array | None "
              "= None, sinks: Array | None = None, q_lengths: Integers | None = None, kv_lengths: Integers | None = "
              "None, require_readable_key: bool = False, return_lse: bool = False, return_probs: bool = False, out: "
              "Array | None = None, _dropout: tuple[float, int] | None = None) -> typing.Any"),
      kAttention);
  m.def(
      "attention_backward", &attention_backward, arg("q"), arg("k"), arg("v"), arg("out"), arg("lse"), arg("dout"),
      nb::kw_only(), arg("causal").none() = nb::none(), arg("start").none() = nb::none(),
      arg("mask").none() = nb::none(), arg("scale").none() = nb::none(), arg("softcap") = 0.0,
      arg("window").none() = nb::none(), arg("alibi").none() = nb::none(), arg("sinks").none() = nb::none(),
      arg("q_lengths").none() = nb::none(), arg("kv_lengths").none() = nb::none(), arg("require_readable_key") = false,
      arg("want_dmask") = false, arg("_dropout").none() = nb::none(),
      nb::sig("def attention_backward(q: Array, k: Array, v: Array, out: Array, lse: Array, dout: Array, *, causal: "
              "typing.Literal['top_left', 'bottom_right', 'start'] | None = None, start: Integers | None = None, mask: "
              "Array | None = None, scale: float | None = None, softcap: float = 0.0, window: tuple[int | None, int | "
              "None] | None = None, alibi: Array | None = None, sinks: Array | None = None, q_lengths: Integers | None "
              "= None, kv_lengths: Integers | None = None, require_readable_key: bool = False, want_dmask: bool = "
              "False, _dropout: tuple[float, int] | None = None) -> AttentionGradients"),
      kBackward);
  m.def("_described", &described, arg("array"),
        "(address, type, shape, strides in elements) of an array as it is read.");
}

}  // namespace qkv::python
