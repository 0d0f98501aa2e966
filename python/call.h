// SPDX-License-Identifier: Apache-2.0
// One Python call of qkv.attention or its gradients: arrays, options, leading axes, and execution.
#pragma once

#include <nanobind/nanobind.h>
#include <qkv/attention.h>
#include <qkv/attention_members.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <string>
#include <vector>

#include "array.h"
#include "leading.h"

namespace qkv::python {

// Attention options from Python keywords, and the arrays they point into. Throws std::invalid_argument, nb::type_error
// and nb::python_error.
class Options {
 public:
  explicit Options(const nb::kwargs& given) : given_(given) {}

  // The option's value, or None if not given.
  nb::object take(const char* keyword);
  // All given options of for_each_other_option().
  void take_others(AttentionOptions& options);
  // Throws if a given option was not taken.
  void finish(const char* function) const;

 private:
  const nb::kwargs& given_;
  std::size_t taken_ = 0;
  std::vector<const char*> known_;
  std::list<Borrowed> arrays_;
};

// Everything determined before computing. Throws std::invalid_argument, nb::type_error and nb::python_error.
struct Call {
  Borrowed q, k, v;
  Options given;
  AttentionOptions options;  // for all sequences
  LeadingAxes axes;
  Framework framework;

  Call(const char* function, nb::handle q_array, nb::handle k_array, nb::handle v_array, const nb::kwargs& keywords);

  AttentionOptions options_of(std::int64_t call) const;
  DType sum_type() const noexcept { return q.view().dtype == DType::f64 ? DType::f64 : DType::f32; }
  std::int64_t heads() const { return q.view().rank() == 2 ? 1 : q.view().shape[q.view().rank() - 3]; }
  std::int64_t q_len() const { return q.view().shape[q.view().rank() - 2]; }
  std::int64_t kv_len() const { return k.view().shape[k.view().rank() - 2]; }
  std::int64_t d_v() const { return v.view().shape[v.view().rank() - 1]; }
  Dims scores_shape() const { return axes.shape({heads(), q_len(), kv_len()}); }  // [..., n_head, q_len, kv_len]
};

// Part of a call: everything, or one sequence and the query heads that share one key head.
struct Part {
  std::int64_t sequence = -1, first_head = 0, heads = 0;  // -1: all

  // [batch, n_head, ...]; axes of size 1 are broadcast. Empty views stay empty.
  View of(const View& view) const { return cut(view, first_head, heads); }
  ConstView of(const ConstView& view) const;
  // [batch, n_kv_head, ...]
  View of_keys(const View& view) const { return cut(view, sequence < 0 ? 0 : first_head / heads, 1); }
  ConstView of_keys(const ConstView& view) const;
  AttentionOptions of(AttentionOptions options) const;

 private:
  View cut(View view, std::int64_t first, std::int64_t count) const;
};

// Whether a call can be split into parts: all sizes are consistent, and no dropout. results: [batch, n_head, ...].
bool may_cut(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
             std::initializer_list<ConstView> results);

// Runs `compute` without the GIL, then checks for Ctrl-C. A long call, if it can be split, runs one sequence and key
// head at a time, so that Ctrl-C does not wait for all of it; results are bit-identical.
// q [batch, n_head, q_len, d_k], k [batch, n_kv_head, kv_len, d_k].
void run(const ConstView& q, const ConstView& k, bool may_cut, const std::function<void(const Part&)>& compute);
// Sets the number of operations from which a call is long; returns the old value. For tests.
double set_long_work(double operations);

}  // namespace qkv::python
