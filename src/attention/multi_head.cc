// SPDX-License-Identifier: Apache-2.0
#include "qkv/multi_head.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "linalg/gemm.h"

namespace qkv {
namespace {

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[multi_head] " + expected + "; found " + found);
}

void check_tensor(const char* name, const Tensor& tensor, const Dims& shape, DType dtype) {
  if (tensor.raw() && tensor.shape() == shape && tensor.dtype() == dtype) return;
  fail(std::string(name) + " must be " + std::string(dtype_name(dtype)) + " " + to_string(shape),
       tensor.raw() ? std::string(dtype_name(tensor.dtype())) + " " + to_string(tensor.shape()) : "an empty tensor");
}

struct Widths {
  std::int64_t q, k, v, read;  // of the concatenated heads
};
Widths widths(const MultiHeadConfig& c) {
  return {c.n_head * c.head_dim, c.n_kv_head * c.head_dim, c.n_kv_head * c.v_head_dim, c.n_head * c.v_head_dim};
}

void check_parameters(const MultiHeadConfig& c, const MultiHeadParameters& p, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64) fail("x must be f32 or f64", std::string(dtype_name(dtype)));
  const Widths w = widths(c);
  check_tensor("w_q", p.w_q, {c.d_model, w.q}, dtype);
  check_tensor("w_k", p.w_k, {c.d_model, w.k}, dtype);
  check_tensor("w_v", p.w_v, {c.d_model, w.v}, dtype);
  check_tensor("w_o", p.w_o, {w.read, c.d_model}, dtype);
  if (!c.bias) return;
  check_tensor("b_q", p.b_q, {w.q}, dtype);
  check_tensor("b_k", p.b_k, {w.k}, dtype);
  check_tensor("b_v", p.b_v, {w.v}, dtype);
  check_tensor("b_o", p.b_o, {c.d_model}, dtype);
}

void check_sequences(const char* name, const ConstView& x, std::int64_t d_model) {
  if (x.rank() != 3 || x.shape[2] != d_model)
    fail(std::string(name) + " must be [batch, ctx, " + std::to_string(d_model) + "]", "shape " + to_string(x.shape));
  if (!x && element_count(x.shape) > 0) fail(std::string(name) + " must be given", "a view without data");
}

// [batch, ctx, heads * d] viewed as [batch, heads, ctx, d].
ConstView as_heads(const Tensor& t, std::int64_t heads) {
  const std::int64_t batch = t.shape()[0], ctx = t.shape()[1], d = t.shape()[2] / heads;
  const ConstView apart{t.raw(), t.dtype(), {batch, ctx, heads, d}, contiguous_strides({batch, ctx, heads, d})};
  return swap_axes(apart, 1, 2);
}
View as_heads(Tensor& t, std::int64_t heads) {
  const ConstView v = as_heads(static_cast<const Tensor&>(t), heads);
  return {t.raw(), v.dtype, v.shape, v.strides};
}

// x [batch, ctx, d] as a row-major tensor of the same type.
template <class T>
Tensor row_major(const ConstView& x) {
  Tensor copy(x.shape, x.dtype);
  T* to = copy.data<T>();
  for (std::int64_t b = 0; b < x.shape[0]; ++b)
    for (std::int64_t t = 0; t < x.shape[1]; ++t)
      for (std::int64_t c = 0; c < x.shape[2]; ++c)
        *to++ = static_cast<const T*>(x.data)[b * x.strides[0] + t * x.strides[1] + c * x.strides[2]];
  return copy;
}

// x . w + bias                                                   x [batch, ctx, in], w [in, out] -> [batch, ctx, out]
template <class T>
Tensor project(const Tensor& x, const Tensor& w, const Tensor& bias, bool with_bias) {
  const std::int64_t rows = x.shape()[0] * x.shape()[1], in = w.shape()[0], out = w.shape()[1];
  Tensor y({x.shape()[0], x.shape()[1], out}, x.dtype());
  if (with_bias) {
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(bias.data<T>(), out, y.data<T>() + r * out);
  }
  gemm(false, false, rows, out, in, x.data<T>(), in, w.data<T>(), out, with_bias ? T{1} : T{0}, y.data<T>(), out);
  return y;
}

// y = x . w + bias: dw = x^T . dy, dbias = sum of the rows of dy, dx += dy . w^T
template <class T>
void project_backward(const Tensor& x, const Tensor& w, const Tensor& dy, bool with_bias, Tensor& dx, Tensor& dw,
                      Tensor& dbias) {
  const std::int64_t rows = x.shape()[0] * x.shape()[1], in = w.shape()[0], out = w.shape()[1];
  gemm(true, false, in, out, rows, x.data<T>(), in, dy.data<T>(), out, T{0}, dw.data<T>(), out);
  gemm(false, true, rows, in, out, dy.data<T>(), out, w.data<T>(), out, T{1}, dx.data<T>(), in);
  if (!with_bias) return;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < out; ++c) dbias.data<T>()[c] += dy.data<T>()[r * out + c];
}

template <class T>
Tensor forward(const MultiHeadConfig& c, const MultiHeadParameters& p, const ConstView& x_view,
               const AttentionOptions& options, MultiHeadActivations& a) {
  const std::int64_t batch = x_view.shape[0], ctx = x_view.shape[1];
  const Tensor x = row_major<T>(x_view);      // [batch, ctx, d_model]
  a.q = project<T>(x, p.w_q, p.b_q, c.bias);  // [batch, ctx, n_head * head_dim]
  a.k = project<T>(x, p.w_k, p.b_k, c.bias);  // [batch, ctx, n_kv_head * head_dim]
  a.v = project<T>(x, p.w_v, p.b_v, c.bias);  // [batch, ctx, n_kv_head * v_head_dim]
  a.read = Tensor({batch, ctx, widths(c).read}, x.dtype());
  a.lse = Tensor({batch, c.n_head, ctx}, x.dtype());
  attention(as_heads(std::as_const(a.q), c.n_head), as_heads(std::as_const(a.k), c.n_kv_head),
            as_heads(std::as_const(a.v), c.n_kv_head), options,
            {.out = as_heads(a.read, c.n_head), .lse = a.lse, .probs = {}});
  return project<T>(a.read, p.w_o, p.b_o, c.bias);  // [batch, ctx, d_model]
}

template <class T>
MultiHeadGradients backward(const MultiHeadConfig& c, const MultiHeadParameters& p, const ConstView& x_view,
                            const MultiHeadActivations& a, const ConstView& dout_view, const AttentionOptions& options,
                            AttentionGradients wanted) {
  const Tensor x = row_major<T>(x_view), dout = row_major<T>(dout_view);  // [batch, ctx, d_model]
  MultiHeadGradients g{Tensor(x.shape(), x.dtype()), make_multi_head(c, x.dtype())};
  Tensor dread(a.read.shape(), x.dtype());  // [batch, ctx, n_head * v_head_dim]
  Tensor dq(a.q.shape(), x.dtype()), dk(a.k.shape(), x.dtype()), dv(a.v.shape(), x.dtype());  // as q, k, v
  project_backward<T>(a.read, p.w_o, dout, c.bias, dread, g.parameters.w_o, g.parameters.b_o);
  wanted.dq = as_heads(dq, c.n_head);
  wanted.dk = as_heads(dk, c.n_kv_head);
  wanted.dv = as_heads(dv, c.n_kv_head);
  attention_backward(as_heads(a.q, c.n_head), as_heads(a.k, c.n_kv_head), as_heads(a.v, c.n_kv_head),
                     as_heads(a.read, c.n_head), a.lse, as_heads(std::as_const(dread), c.n_head), options, wanted);
  project_backward<T>(x, p.w_q, dq, c.bias, g.dx, g.parameters.w_q, g.parameters.b_q);
  project_backward<T>(x, p.w_k, dk, c.bias, g.dx, g.parameters.w_k, g.parameters.b_k);
  project_backward<T>(x, p.w_v, dv, c.bias, g.dx, g.parameters.w_v, g.parameters.b_v);
  return g;
}

}  // namespace

MultiHeadConfig MultiHeadConfig::resolved() const {
  MultiHeadConfig c = *this;
  const auto at_least = [](const char* name, std::int64_t size, std::int64_t least) {
    if (size < least) fail(std::string(name) + " must be at least " + std::to_string(least), std::to_string(size));
  };
  at_least("d_model", d_model, 1);
  at_least("n_head", n_head, 1);
  at_least("n_kv_head", n_kv_head, 0);
  at_least("head_dim", head_dim, 0);
  at_least("v_head_dim", v_head_dim, 0);
  if (c.n_kv_head == 0) c.n_kv_head = n_head;
  if (n_head % c.n_kv_head != 0)
    fail("n_head must be a multiple of n_kv_head", std::to_string(n_head) + " and " + std::to_string(c.n_kv_head));
  if (head_dim == 0) {
    if (d_model % n_head != 0)
      fail("d_model must be a multiple of n_head unless head_dim is given",
           std::to_string(d_model) + " and " + std::to_string(n_head));
    c.head_dim = d_model / n_head;
  }
  if (v_head_dim == 0) c.v_head_dim = c.head_dim;
  // Checks the sizes of the largest matrices for overflow.
  element_count({d_model, n_head, c.head_dim});
  element_count({d_model, n_head, c.v_head_dim});
  return c;
}

MultiHeadParameters make_multi_head(const MultiHeadConfig& config, DType dtype) {
  const MultiHeadConfig c = config.resolved();
  if (dtype != DType::f32 && dtype != DType::f64) fail("the type must be f32 or f64", std::string(dtype_name(dtype)));
  const Widths w = widths(c);
  MultiHeadParameters p;
  p.w_q = Tensor({c.d_model, w.q}, dtype);
  p.w_k = Tensor({c.d_model, w.k}, dtype);
  p.w_v = Tensor({c.d_model, w.v}, dtype);
  p.w_o = Tensor({w.read, c.d_model}, dtype);
  if (!c.bias) return p;
  p.b_q = Tensor({w.q}, dtype);
  p.b_k = Tensor({w.k}, dtype);
  p.b_v = Tensor({w.v}, dtype);
  p.b_o = Tensor({c.d_model}, dtype);
  return p;
}

Tensor multi_head(const MultiHeadConfig& config, const MultiHeadParameters& parameters, const ConstView& x,
                  const AttentionOptions& options, MultiHeadActivations* activations) {
  const MultiHeadConfig c = config.resolved();
  check_sequences("x", x, c.d_model);
  check_parameters(c, parameters, x.dtype);
  MultiHeadActivations unwanted;
  MultiHeadActivations& a = activations ? *activations : unwanted;
  return x.dtype == DType::f64 ? forward<double>(c, parameters, x, options, a)
                               : forward<float>(c, parameters, x, options, a);
}

MultiHeadGradients multi_head_backward(const MultiHeadConfig& config, const MultiHeadParameters& parameters,
                                       const ConstView& x, const MultiHeadActivations& activations,
                                       const ConstView& dout, const AttentionOptions& options,
                                       const AttentionGradients& attention_gradients) {
  const MultiHeadConfig c = config.resolved();
  check_sequences("x", x, c.d_model);
  check_parameters(c, parameters, x.dtype);
  if (!(dout.shape == x.shape) || dout.dtype != x.dtype) {
    fail("dout must be " + std::string(dtype_name(x.dtype)) + " " + to_string(x.shape),
         std::string(dtype_name(dout.dtype)) + " " + to_string(dout.shape));
  }
  check_sequences("dout", dout, c.d_model);
  const Widths w = widths(c);
  const std::int64_t batch = x.shape[0], ctx = x.shape[1];
  check_tensor("activations.q", activations.q, {batch, ctx, w.q}, x.dtype);
  check_tensor("activations.k", activations.k, {batch, ctx, w.k}, x.dtype);
  check_tensor("activations.v", activations.v, {batch, ctx, w.v}, x.dtype);
  check_tensor("activations.read", activations.read, {batch, ctx, w.read}, x.dtype);
  check_tensor("activations.lse", activations.lse, {batch, c.n_head, ctx}, x.dtype);
  if (attention_gradients.dq || attention_gradients.dk || attention_gradients.dv)
    fail("attention_gradients may request only dmask and dsinks", "dq, dk or dv");
  return x.dtype == DType::f64 ? backward<double>(c, parameters, x, activations, dout, options, attention_gradients)
                               : backward<float>(c, parameters, x, activations, dout, options, attention_gradients);
}

}  // namespace qkv
