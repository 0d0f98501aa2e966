// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <type_traits>
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
  if (!PyIndex_Check(side.ptr())) fail("window must be (left, right), integers or None for no limit", side);
  const long long value = PyLong_AsLongLong(nb::steal(PyNumber_Index(side.ptr())).ptr());
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    fail("window must be 64-bit integers from -1", side);
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

double number(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (PyErr_Occurred()) throw nb::python_error();
  return value;
}

// Calls with more operations than this (about one second of work) are split. Accessed with the GIL held.
double long_work = 1e11;

}  // namespace

nb::object Options::take(const char* keyword) {
  known_.push_back(keyword);
  if (!given_.contains(keyword)) return nb::none();
  ++taken_;
  return given_[keyword];
}

void Options::take_others(AttentionOptions& options) {
  for_each_other_option(
      [&]<class T>(const OptionText& option, T& to) {
        const nb::object object = take(option.keyword);
        if constexpr (std::is_same_v<T, bool>) {
          if (!object.is_none() && !nb::try_cast(object, to))
            throw nb::type_error((std::string(option.keyword) + " must be True or False").c_str());
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>) {
          if (!object.is_none()) to = number(object);
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          to = integers(option.keyword, object);
        } else if constexpr (std::is_same_v<T, ConstView>) {
          if (!object.is_none()) to = arrays_.emplace_back(option.keyword, object).view();
        } else {
          set_dropout(object, to);
        }
      },
      options);
}

void Options::finish(const char* function) const {
  if (taken_ == given_.size()) return;
  for (const auto& [keyword, value] : given_) {
    const std::string name = nb::cast<std::string>(keyword);
    if (std::find(known_.begin(), known_.end(), name) == known_.end())
      throw nb::type_error((std::string(function) + "() got an unexpected keyword argument '" + name + "'").c_str());
  }
}

Call::Call(const char* function, nb::handle q_array, nb::handle k_array, nb::handle v_array, const nb::kwargs& keywords)
    : q("q", q_array),
      k("k", k_array),
      v("v", v_array),
      given(keywords),
      axes(q.view()),
      framework(framework_of(q_array)) {
  axes.add("q", q.view(), 3);
  axes.add("k", k.view(), 3);
  axes.add("v", v.view(), 3);
  nb::object causal = given.take("causal");
  const nb::object start = given.take("start"), window = given.take("window"), is_causal = given.take("is_causal");
  if (!is_causal.is_none()) {  // PyTorch's keyword: top-left alignment
    if (!nb::isinstance<nb::bool_>(is_causal)) fail("is_causal must be True or False", is_causal);
    if (!causal.is_none()) throw std::invalid_argument("[attention] expected causal or is_causal; found both");
    if (nb::cast<bool>(is_causal)) causal = nb::str("top_left");
  }
  given.take_others(options);
  given.finish(function);
  if (options.mask) axes.add_broadcast("mask", options.mask, 3);
  options.alignment = alignment(causal, !start.is_none());
  options.causal = !causal.is_none();
  options.start = integers("start", start);
  set_window(window, options);
  const bool placed = options.causal || !window.is_none() || options.alibi_slopes;
  if (!start.is_none() && !placed)
    throw std::invalid_argument("[attention] start is used by causal='start', window or alibi; found none of them");
  if (!placed) options.alignment = Alignment::none;
}

AttentionOptions Call::options_of(std::int64_t call) const {
  AttentionOptions mine = options;
  mine.mask = axes.at(options.mask, 3, call);
  for_each_option(
      [&]<class T>(const OptionText& option, T& values) {
        if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) values = axes.at(option.keyword, values, call);
      },
      mine);
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
  for_each_option(
      [&]<class T>(const OptionText&, T& option) {
        if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          if (option.size() > 1) option = {option[static_cast<std::size_t>(sequence)]};
        } else if constexpr (std::is_same_v<T, ConstView>) {
          if (&option == &options.mask) {
            option = of(option);
          } else if (option) {  // [n_head]
            option.data =
                static_cast<const char*>(option.data) + row_bytes(option.dtype, first_head * option.strides[0]);
            option.shape = Dims{heads};
          }
        }
      },
      options);
  return options;
}

bool may_cut(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
             std::initializer_list<ConstView> results) {
  const std::int64_t batch = q.shape[0], heads = q.shape[1], n_kv_head = k.shape[1];
  bool fits = k.shape[0] == batch && v.shape[0] == batch && v.shape[1] == n_kv_head && n_kv_head > 0 &&
              heads % n_kv_head == 0 && options.dropout.p == 0;
  for_each_option(
      [&]<class T>(const OptionText&, const T& option) {
        if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          const auto count = static_cast<std::int64_t>(option.size());
          fits = fits && (count == 0 || count == batch || (&option == &options.start && count == 1));
        } else if constexpr (std::is_same_v<T, ConstView>) {
          const Dims& shape = option.shape;
          if (&option == &options.mask)  // [batch or 1, n_head or 1, ...]
            fits = fits && (!option || ((shape[0] == batch || shape[0] == 1) && (shape[1] == heads || shape[1] == 1)));
          else
            fits = fits && (!option || (option.rank() == 1 && shape[0] == heads));
        }
      },
      options);
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
