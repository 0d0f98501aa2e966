// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <utility>

#include "text.h"

namespace qkv::python {
namespace {

[[noreturn]] void fail(const std::string& expected, nb::handle found) {
  throw std::invalid_argument("[attention] " + expected + "; found " + shown_text(found));
}

Alignment alignment(nb::handle causal, bool start) {
  if (causal.is_none()) return start ? Alignment::start : Alignment::none;
  if (nb::isinstance<nb::str>(causal)) {
    const std::string name = name_given("causal", causal);
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
  std::pair<double, std::uint64_t> given;
  if (!nb::try_cast(dropout, given)) fail("dropout must be (p, seed)", dropout);
  to.p = given.first;
  to.seed = given.second;
}

// Above so many operations a call is cut: about a second's work. Read and written with the GIL held.
double long_work = 1e11;

}  // namespace

Call::Call(nb::handle q_array, nb::handle k_array, nb::handle v_array, const Options& given)
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

AttentionOptions Call::options_of(std::int64_t call) const {
  AttentionOptions mine = options;
  mine.mask = axes.at(mask.view(), 3, call);
  mine.start = axes.at("start", options.start, call);
  mine.q_lengths = axes.at("q_lengths", options.q_lengths, call);
  mine.kv_lengths = axes.at("kv_lengths", options.kv_lengths, call);
  mine.dropout.first_sequence = call * axes.batch();
  return mine;
}

View Part::cut(View view, std::int64_t first, std::int64_t count) const {
  if (sequence < 0 || !view) return view;
  auto* data = static_cast<char*>(view.data);
  const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
  if (view.shape[0] > 1) data += sequence * view.strides[0] * size;
  view.shape[0] = 1;
  if (view.shape[1] > 1) {
    data += first * view.strides[1] * size;
    view.shape[1] = count;
  }
  view.data = data;
  return view;
}

ConstView Part::of(const ConstView& view) const {
  return of(View{const_cast<void*>(view.data), view.dtype, view.shape, view.strides});
}
ConstView Part::of_keys(const ConstView& view) const {
  return of_keys(View{const_cast<void*>(view.data), view.dtype, view.shape, view.strides});
}

AttentionOptions Part::of(AttentionOptions options) const {
  if (sequence < 0) return options;
  for (auto* values : {&options.start, &options.q_lengths, &options.kv_lengths}) {
    if (values->size() > 1) *values = {(*values)[static_cast<std::size_t>(sequence)]};
  }
  options.mask = of(options.mask);
  for (auto* view : {&options.alibi_slopes, &options.sinks}) {
    if (!*view) continue;
    view->data = static_cast<const char*>(view->data) +
                 first_head * view->strides[0] * static_cast<std::int64_t>(dtype_size(view->dtype));
    view->shape = Dims{heads};
  }
  return options;
}

bool may_cut(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
             std::initializer_list<ConstView> results) {
  const std::int64_t batch = q.shape[0], heads = q.shape[1], n_kv_head = k.shape[1];
  bool fits = k.shape[0] == batch && v.shape[0] == batch && v.shape[1] == n_kv_head && n_kv_head > 0 &&
              heads % n_kv_head == 0 && options.dropout.p == 0;
  for (const auto* values : {&options.start, &options.q_lengths, &options.kv_lengths})
    fits = fits && (values->empty() || static_cast<std::int64_t>(values->size()) == batch ||
                    (values == &options.start && values->size() == 1));
  for (const auto* view : {&options.alibi_slopes, &options.sinks})
    fits = fits && (!*view || (view->rank() == 1 && view->shape[0] == heads));
  const ConstView& mask = options.mask;  // [batch or 1, n_head or 1, ...]
  fits = fits &&
         (!mask || ((mask.shape[0] == batch || mask.shape[0] == 1) && (mask.shape[1] == heads || mask.shape[1] == 1)));
  for (const ConstView& view : results) fits = fits && (!view || (view.shape[0] == batch && view.shape[1] == heads));
  return fits;
}

double set_long_work(double operations) { return std::exchange(long_work, operations); }

void run(const ConstView& q, const ConstView& k, bool may_cut, const std::function<void(const Part&)>& compute) {
  const auto part = [&](const Part& some) {
    {
      const nb::gil_scoped_release released;
      compute(some);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  const auto size = [](const ConstView& view, int axis) { return static_cast<double>(view.shape[axis]); };
  const double operations = 4 * size(q, 0) * size(q, 1) * size(q, 2) * size(k, 2) * size(q, 3);
  if (!may_cut || operations < long_work) return part({});
  const std::int64_t group = q.shape[1] / k.shape[1];
  for (std::int64_t b = 0; b < q.shape[0]; ++b) {
    for (std::int64_t h = 0; h < k.shape[1]; ++h) part({b, h * group, group});
  }
}

}  // namespace qkv::python
