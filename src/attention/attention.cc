// SPDX-License-Identifier: Apache-2.0
// The public entry points: validate, choose a path, run.
#include "qkv/attention.h"

#include <stdexcept>
#include <string>

#include "attention/problem.h"

namespace qkv {
namespace {

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[attention] " + expected + "; found " + found);
}

// The accumulation type: f64 for f64, f32 for all others.
DType sum_type(const AttentionProblem& p) noexcept { return p.q.dtype == DType::f64 ? DType::f64 : DType::f32; }

void check_array(const char* name, const ConstView& view, const Dims& shape) {
  if (!(view.shape == shape))
    fail(std::string(name) + " must have the shape " + to_string(shape), to_string(view.shape));
  if (!view && element_count(shape) > 0) fail(std::string(name) + " must be given", "a view without data");
}

void check_type(const char* name, DType found, DType a, DType b) {
  if (found == a || found == b) return;
  const std::string either = a == b ? "" : " or " + std::string(dtype_name(b));
  fail(std::string(name) + " must be " + std::string(dtype_name(a)) + either, std::string(dtype_name(found)));
}

// Checks an output view: its elements must be distinct. A view without elements is not requested.
void check_output(const char* name, View& view, const Dims& shape, DType a, DType b) {
  if (!view) return;
  check_array(name, view, shape);
  check_type(name, view.dtype, a, b);
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.shape[axis] > 1 && view.strides[axis] == 0)
      fail(std::string(name) + " must not repeat elements", "stride 0 along axis " + std::to_string(axis));
  }
  if (element_count(shape) == 0) view.data = nullptr;
}

AttentionPath choose_path(const AttentionProblem& p, AttentionPath wanted) {
  const bool f64 = p.q.dtype == DType::f64;
  if (wanted == AttentionPath::tiled && f64) fail("the tiled path supports f32, bf16 and f16", "f64");
  if (wanted == AttentionPath::automatic) return f64 ? AttentionPath::reference : AttentionPath::tiled;
  return wanted;
}

Dims out_shape(const AttentionProblem& p) { return {p.batch, p.n_head, p.q_len, p.d_v}; }
Dims lse_shape(const AttentionProblem& p) { return {p.batch, p.n_head, p.q_len}; }
Dims scores_shape(const AttentionProblem& p) { return {p.batch, p.n_head, p.q_len, p.kv_len}; }

void check_gradients(const AttentionProblem& p, const ConstView& mask, AttentionGradients& gradients) {
  const DType sum = sum_type(p);
  if (p.k.dtype != p.q.dtype) fail("gradients need floating k and v", std::string(dtype_name(p.k.dtype)));
  check_output("dq", gradients.dq, p.q.shape, sum, p.q.dtype);
  check_output("dk", gradients.dk, p.k.shape, sum, p.q.dtype);
  check_output("dv", gradients.dv, p.v.shape, sum, p.q.dtype);
  if (gradients.dsinks && p.sinks.empty()) fail("dsinks needs sinks", "none");
  check_output("dsinks", gradients.dsinks, Dims{p.n_head}, sum, p.q.dtype);
  if (!gradients.dmask) return;
  if (!p.mask || p.boolean_mask) fail("dmask needs a floating mask", p.mask ? "a bool mask" : "none");
  check_output("dmask", gradients.dmask, mask.shape, sum, p.q.dtype);
}

}  // namespace

void attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
               const AttentionResults& results) {
  const AttentionProblem p = make_problem(q, k, v, options);
  const AttentionPath path = choose_path(p, options.path);
  AttentionResults wanted = results;
  check_array("out", results.out, out_shape(p));
  check_output("out", wanted.out, out_shape(p), p.q.dtype, sum_type(p));
  check_output("lse", wanted.lse, lse_shape(p), sum_type(p), sum_type(p));
  check_output("probs", wanted.probs, scores_shape(p), sum_type(p), sum_type(p));
  if (p.require_readable_key) check_readable(p);
  if (path == AttentionPath::tiled) {
    tiled_forward(p, wanted);
  } else {
    reference_forward(p, wanted, {});
  }
}

Tensor attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options) {
  const AttentionProblem p = make_problem(q, k, v, options);
  Tensor out(out_shape(p), q.dtype);  // [batch, n_head, q_len, d_v]
  attention(q, k, v, options, {.out = out, .lse = {}, .probs = {}});
  return out;
}

void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                     const AttentionSteps& steps) {
  attention_steps(q, k, v, options, steps, {});
}

void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                     const AttentionSteps& steps, const AttentionResults& results) {
  const AttentionProblem p = make_problem(q, k, v, options);
  AttentionSteps wanted = steps;
  AttentionResults also = results;
  check_output("products", wanted.products, scores_shape(p), sum_type(p), sum_type(p));
  check_output("scores", wanted.scores, scores_shape(p), sum_type(p), sum_type(p));
  check_output("softcapped", wanted.softcapped, scores_shape(p), sum_type(p), sum_type(p));
  check_output("masked", wanted.masked, scores_shape(p), sum_type(p), sum_type(p));
  check_output("probs", wanted.probs, scores_shape(p), sum_type(p), sum_type(p));
  check_output("out", also.out, out_shape(p), p.q.dtype, sum_type(p));
  check_output("lse", also.lse, lse_shape(p), sum_type(p), sum_type(p));
  check_output("probs", also.probs, scores_shape(p), sum_type(p), sum_type(p));
  if (p.require_readable_key) check_readable(p);
  reference_forward(p, also, wanted);
}

void attention_backward(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                        const ConstView& lse, const ConstView& dout, const AttentionOptions& options,
                        const AttentionGradients& gradients) {
  const AttentionProblem p = make_problem(q, k, v, options);
  const AttentionPath path = choose_path(p, options.path);
  check_array("out", out, out_shape(p));
  check_type("out", out.dtype, p.q.dtype, sum_type(p));
  check_array("lse", lse, lse_shape(p));
  check_type("lse", lse.dtype, sum_type(p), sum_type(p));
  check_array("dout", dout, out_shape(p));
  if (!is_floating(dout.dtype)) fail("dout must be floating", std::string(dtype_name(dout.dtype)));
  AttentionGradients wanted = gradients;
  check_gradients(p, options.mask, wanted);
  if (p.require_readable_key) check_readable(p);
  if (path == AttentionPath::tiled) {
    tiled_backward(p, out, lse, dout, wanted);
  } else {
    reference_backward(p, out, lse, dout, wanted);
  }
}

}  // namespace qkv
