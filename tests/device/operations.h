// SPDX-License-Identifier: Apache-2.0
// Device operations as functions from numbers to numbers; backward passes run the forward pass they need first.
#pragma once

#include <iterator>
#include <utility>
#include <vector>

#include "device/arrays.h"

namespace qkv::test {

// A device and its compute dtype.
struct Machine {
  Device& device;
  DType operand;
  DType numbers = DType::f64;  // the type that inputs are rounded to

  Numbers normals(std::int64_t count, std::uint64_t stream) const { return test::normals(count, stream, numbers); }
  Array stream(const Dims& shape) const { return {device, device.stream_type(), shape}; }
  Array stream(const Dims& shape, const Numbers& x) const { return {device, device.stream_type(), shape, x}; }
  Array operands(const Dims& shape, std::int64_t row_stride = 0) const { return {device, operand, shape, row_stride}; }
  Array operands(const Dims& shape, const Numbers& x, std::int64_t row_stride = 0) const {
    return {device, operand, shape, x, row_stride};
  }
};

struct Result {
  Numbers values;
  bool is_operand = false;  // in the compute dtype, not the stream type
};
using Results = std::vector<Result>;

// How parameter gradients are summed, and whether slot 1 has its own memory.
struct Sum {
  Sequences s;
  std::vector<SumStep> steps;
  bool second_slot = false;
};

// A parameter's gradient in slots 0 and 1.
class Slots {
 public:
  Slots(const Machine& m, const Sum& sum, const Dims& shape)
      : first_(m.stream(shape)), second_(m.stream(shape)), both_(sum.second_slot) {}
  operator SlotPointers() { return {first_.raw(), both_ ? second_.raw() : nullptr}; }
  Result result() const { return {first_.values()}; }

 private:
  Array first_, second_;
  bool both_;
};

// --- Products. W [in, columns], given in two parts or transposed; the columns of the matrix after them are 0.
struct ProductSizes {
  std::int64_t rows, in, out, columns;
  bool transposed = false, stream_result = false;
};

inline std::unique_ptr<Matrix> prepared(const Machine& m, const ProductSizes& p, const Numbers& w) {
  std::unique_ptr<Matrix> matrix = m.device.matrix(m.operand, p.in, p.out);
  const auto at = [&](std::int64_t i, std::int64_t j) { return w[static_cast<std::size_t>(i * p.columns + j)]; };
  if (p.transposed) {
    Numbers across;
    for (std::int64_t j = 0; j < p.columns; ++j)
      for (std::int64_t i = 0; i < p.in; ++i) across.push_back(at(i, j));
    m.device.prepare_transposed(*matrix, m.stream(Dims{p.columns, p.in}, across), true);
    return matrix;
  }
  const std::int64_t first = p.columns / 3;
  Numbers left, right;
  for (std::int64_t i = 0; i < p.in; ++i)
    for (std::int64_t j = 0; j < p.columns; ++j) (j < first ? left : right).push_back(at(i, j));
  const Array a = m.stream(Dims{p.in, first}, left), b = m.stream(Dims{p.in, p.columns - first}, right);
  std::vector<ConstView> parts;
  if (first > 0) parts.push_back(a);
  parts.push_back(b);
  m.device.prepare(*matrix, parts, true);
  return matrix;
}

inline Results product(const Machine& m, const ProductSizes& p, const Numbers& w, const Numbers& bias,
                       const Numbers& x) {
  const auto matrix = prepared(m, p, w);
  const Array b = m.stream(Dims{p.out}, bias.empty() ? Numbers(static_cast<std::size_t>(p.out)) : bias);
  Array y = p.stream_result ? m.stream(Dims{p.rows, p.out}) : m.operands(Dims{p.rows, p.out});
  m.device.prefetch(*matrix);
  m.device.product(m.operands(Dims{p.rows, p.in}, x), *matrix, bias.empty() ? ConstView{} : b, y);
  return {{y.values(), !p.stream_result}};
}

inline Results product_backward(const Machine& m, const ProductSizes& p, const Numbers& w, const Numbers& dy) {
  const auto matrix = prepared(m, p, w);
  Array dx = p.stream_result ? m.stream(Dims{p.rows, p.in}) : m.operands(Dims{p.rows, p.in});
  m.device.product_backward(m.operands(Dims{p.rows, p.out}, dy), *matrix, dx);
  return {{dx.values(), !p.stream_result}};
}

// x [rows, in], dy [rows, out], with rows `gap` longer -> dW and db
inline Results weight_gradients(const Machine& m, const Sum& sum, std::int64_t in, std::int64_t out, std::int64_t gap,
                                const Numbers& x, const Numbers& dy) {
  const Array xs = m.operands(Dims{sum.s.rows(), in}, x, in + gap);
  const Array dys = m.operands(Dims{sum.s.rows(), out}, dy, out + gap);
  Slots dw(m, sum, Dims{in, out}), db(m, sum, Dims{out}), across(m, sum, Dims{out, in});
  const std::vector<WeightGradient> gradients{{xs, dys, dw}, {dys, xs, across}, {xs, dys, {}}};
  m.device.weight_gradients(sum.s, sum.steps, gradients);
  m.device.bias_gradient(sum.s, sum.steps, dys, db);
  m.device.bias_gradient(sum.s, sum.steps, dys, {});
  return {dw.result(), db.result(), across.result()};
}

// --- Norms. gain and bias [d] or empty.
struct NormCase {
  Norm kind;
  double eps;
  std::int64_t rows, d;
  Numbers gain = {}, bias = {};
};

// The parameters of a norm on a device.
class NormOn {
 public:
  NormOn(const Machine& m, const NormCase& n)
      : gain_(m.stream(Dims{static_cast<std::int64_t>(n.gain.size())}, n.gain)),
        bias_(m.stream(Dims{static_cast<std::int64_t>(n.bias.size())}, n.bias)),
        parameters{n.kind, n.eps, n.gain.empty() ? ConstView{} : gain_, n.bias.empty() ? ConstView{} : bias_} {}

 private:
  Array gain_, bias_;

 public:
  const NormParameters parameters;
};

inline Results norm(const Machine& m, const NormCase& n, const Numbers& x) {
  Array y = m.operands(Dims{n.rows, n.d}), statistics = m.stream(Dims{n.rows, 2});
  m.device.norm(NormOn(m, n).parameters, m.stream(Dims{n.rows, n.d}, x), y, statistics);
  return {{y.values(), true}, {statistics.values()}};
}

inline Results add_norm(const Machine& m, const NormCase& n, const Numbers& x, const Numbers& delta) {
  Array sum = m.stream(Dims{n.rows, n.d}, x), y = m.operands(Dims{n.rows, n.d}), statistics = m.stream(Dims{n.rows, 2});
  m.device.add_norm(NormOn(m, n).parameters, sum, m.stream(Dims{n.rows, n.d}, delta), sum, y, statistics);
  return {{sum.values()}, {y.values(), true}, {statistics.values()}};
}

// -> dx, the same in place of dy, 5 + dx, dgain, dbias
inline Results norm_backward(const Machine& m, const Sum& sum, const NormCase& n, const Numbers& x, const Numbers& dy) {
  const NormOn on(m, n);
  const Dims shape{n.rows, n.d};
  const Array xs = m.stream(shape, x), dys = m.stream(shape, dy);
  Array y = m.stream(shape), statistics = m.stream(Dims{n.rows, 2});
  m.device.norm(on.parameters, xs, y, statistics);
  Array dx = m.stream(shape), in_place = m.stream(shape, dy), added = m.stream(shape, Numbers(x.size(), 5.0));
  Slots dgain(m, sum, Dims{n.d}), dbias(m, sum, Dims{n.d});
  const NormSlots slots{dgain, dbias};
  m.device.norm_backward(sum.s, sum.steps, on.parameters, xs, statistics, dys, true, added, {});
  m.device.norm_backward(sum.s, sum.steps, on.parameters, xs, statistics, dys, false, dx, slots);
  m.device.norm_backward(sum.s, sum.steps, on.parameters, xs, statistics, in_place, false, in_place, {});
  return {{dx.values()}, {in_place.values()}, {added.values()}, dgain.result(), dbias.result()};
}

// --- Group norms: x [rows, groups * width], with rows `gap` longer.
struct GroupCase {
  std::int64_t groups, width, gap;
  Numbers gain = {};  // [width]
};

inline Results group_norm(const Machine& m, std::int64_t rows, const GroupCase& g, const Numbers& x) {
  const std::int64_t size = g.groups * g.width;
  const NormOn on(m, {Norm::rmsnorm, 1e-3, rows, size, g.gain});
  Array y = m.operands(Dims{rows, size}, size + g.gap), statistics = m.stream(Dims{rows, g.groups});
  m.device.group_norm(on.parameters, g.groups, g.width, m.operands(Dims{rows, size}, x, size + g.gap), y, statistics);
  return {{y.values(), true}, {statistics.values()}};
}

inline Results group_norm_backward(const Machine& m, const Sum& sum, const GroupCase& g, const Numbers& x,
                                   const Numbers& dy) {
  const std::int64_t rows = sum.s.rows(), size = g.groups * g.width;
  const NormOn on(m, {Norm::rmsnorm, 1e-3, rows, size, g.gain});
  const Array xs = m.operands(Dims{rows, size}, x, size + g.gap);
  Array y = m.operands(Dims{rows, size}), statistics = m.stream(Dims{rows, g.groups});
  m.device.group_norm(on.parameters, g.groups, g.width, xs, y, statistics);
  Array dx = m.operands(Dims{rows, size}, dy, size + g.gap);
  Slots dgain(m, sum, Dims{g.width});
  m.device.group_norm_backward(sum.s, sum.steps, on.parameters, g.groups, g.width, xs, statistics, dx, dgain);
  return {{dx.values(), true}, dgain.result()};
}

// --- MLP: up [rows, d_ff], gated [rows, 2 * d_ff].
struct ActivationCase {
  Activation kind;
  bool gated;
  std::int64_t rows, d_ff;
  std::int64_t width() const { return gated ? 2 * d_ff : d_ff; }
};

inline Results activation(const Machine& m, const ActivationCase& c, const Numbers& up) {
  Array ups = m.operands(Dims{c.rows, c.width()}, up), a = m.operands(Dims{c.rows, c.d_ff});
  m.device.activation(c.kind, c.gated, ups, a);
  if (c.gated) return {{a.values(), true}};
  m.device.activation(c.kind, c.gated, ups, ups);  // in place
  return {{a.values(), true}, {ups.values(), true}};
}

inline Results activation_backward(const Machine& m, const ActivationCase& c, const Numbers& up, const Numbers& da) {
  Array ups = m.operands(Dims{c.rows, c.width()}, up), das = m.operands(Dims{c.rows, c.d_ff}, da);
  Array dup = m.operands(Dims{c.rows, c.width()});
  m.device.activation_backward(c.kind, c.gated, ups, das, dup);
  if (c.gated) return {{dup.values(), true}};
  if (c.kind == Activation::relu) m.device.activation(c.kind, false, ups, ups);  // takes its result too
  m.device.activation_backward(c.kind, c.gated, ups, das, das);
  return {{dup.values(), true}, {das.values(), true}};
}

// --- Rotary positions, with rows `gap` longer; cosines and sines are multiplied by `factor`.
struct RotaryCase {
  RotaryHeads heads;
  std::int64_t first_position;
  double factor = 1;
  std::int64_t gap = 0;
};

inline Results rotary(const Machine& m, const Sequences& s, const RotaryCase& c, bool back, const Numbers& x) {
  const std::int64_t half = c.heads.rotated / 2, positions = c.first_position + s.ctx;
  Numbers cosines, sines;  // [positions, rotated / 2]
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(100, -static_cast<double>(i) / static_cast<double>(half));
      cosines.push_back(c.factor * std::cos(angle));
      sines.push_back(c.factor * std::sin(angle));
    }
  const Array cosine = m.stream(Dims{positions, half}, cosines), sine = m.stream(Dims{positions, half}, sines);
  const std::int64_t width = c.heads.heads * c.heads.head_dim;
  Array y = m.operands(Dims{s.rows(), width}, x, width + c.gap);
  m.device.rotary(s, {cosine, sine}, c.heads, c.first_position, back, y);
  return {{y.values(), true}};
}

// --- Attention: q, k and v are columns of one array [rows, q + k + v], heads adjacent.
struct AttentionCase {
  Sequences s;
  std::int64_t n_head, n_kv_head, d_k, d_v;
  AttentionOptions options;  // lengths come from s; sinks and slopes from the numbers below
  Numbers sinks = {}, slopes = {};

  std::int64_t q() const { return n_head * d_k; }
  std::int64_t k() const { return n_kv_head * d_k; }
  std::int64_t v() const { return n_kv_head * d_v; }
  std::int64_t out() const { return n_head * d_v; }
};

inline View by_head(const Sequences& s, const View& x, std::int64_t heads) {
  const std::int64_t d = x.shape[1] / heads, stride = x.strides[0];
  return {x.data, x.dtype, Dims{s.batch, heads, s.ctx, d}, Dims{s.ctx * stride, d, stride, 1}};
}

// -> out, lse, and for dout: dq, dk and dv adjacent, dsinks (or nothing)
inline Results attention(const Machine& m, const AttentionCase& c, const Sum& sum, const Numbers& qkv,
                         const Numbers& dout) {
  const std::int64_t rows = c.s.rows(), width = c.q() + c.k() + c.v();
  const Dims heads_shape{c.s.batch, c.n_head, c.s.ctx};
  Array x = m.operands(Dims{rows, width}, qkv), dx = m.operands(Dims{rows, width});
  Array out = m.operands(Dims{rows, c.out()}), lse = m.stream(heads_shape);
  Array douts = m.operands(Dims{rows, c.out()}, dout);
  const Array sinks = m.stream(Dims{static_cast<std::int64_t>(c.sinks.size())}, c.sinks);
  const Array slopes = m.stream(Dims{static_cast<std::int64_t>(c.slopes.size())}, c.slopes);
  AttentionOptions options = c.options;
  options.q_lengths.assign(c.s.lengths.begin(), c.s.lengths.end());
  options.kv_lengths = options.q_lengths;
  if (!c.sinks.empty()) options.sinks = sinks;
  if (!c.slopes.empty()) options.alibi_slopes = slopes;
  const auto q_of = [&](Array& a) { return by_head(c.s, a.columns(0, c.q()), c.n_head); };
  const auto k_of = [&](Array& a) { return by_head(c.s, a.columns(c.q(), c.k()), c.n_kv_head); };
  const auto v_of = [&](Array& a) { return by_head(c.s, a.columns(c.q() + c.k(), c.v()), c.n_kv_head); };
  const View outs = by_head(c.s, out, c.n_head), slope = by_head(c.s, douts, c.n_head);
  m.device.attention(q_of(x), k_of(x), v_of(x), options, {.out = outs, .lse = lse});
  m.device.attention_backward(q_of(x), k_of(x), v_of(x), outs, lse, slope, options,
                              {.dq = q_of(dx), .dk = k_of(dx), .dv = v_of(dx)});
  Results results{{out.values(), true}, {lse.values()}, {dx.values(), true}};
  if (c.sinks.empty()) return results;
  Slots dsinks(m, sum, Dims{c.n_head});
  m.device.sink_gradient(c.s, sum.steps, outs, slope, lse, sinks, dsinks);
  m.device.sink_gradient(c.s, sum.steps, outs, slope, lse, sinks, {});
  results.push_back(dsinks.result());
  return results;
}

// --- First and last layer of the model. table [vocab, d], positions [ctx_len, d] or empty.
struct EmbeddingCase {
  Sequences s;
  std::vector<std::int32_t> tokens;  // [batch, ctx]
  std::int64_t first_position, vocab, ctx_len, d;
  double scale;
  Numbers table, positions;
};

inline Results embed(const Machine& m, const EmbeddingCase& c) {
  const Array table = m.stream(Dims{c.vocab, c.d}, c.table), rounded = m.operands(Dims{c.vocab, c.d}, c.table);
  const Array positions = m.stream(Dims{c.positions.empty() ? 0 : c.ctx_len, c.d}, c.positions);
  Results results;
  for (const Array* rows : {&table, &rounded}) {
    Array x = m.stream(Dims{c.s.rows(), c.d});
    m.device.embed(c.s, c.tokens, c.first_position, {*rows, nullptr}, c.scale,
                   c.positions.empty() ? ConstView{} : positions, x);
    results.push_back({x.values()});
  }
  return results;
}

// -> dtable and dpositions; afterwards slot 1 of the table is zero, and its list of touched rows empty.
inline Results embed_backward(const Machine& m, const Sum& sum, const EmbeddingCase& c, const Numbers& dx) {
  const Dims table{c.vocab, c.d}, positions{c.ctx_len, c.d};
  Array first = m.stream(table), second = m.stream(table, Numbers(static_cast<std::size_t>(c.vocab * c.d)));
  Slots dpositions(m, sum, positions);
  std::vector<std::int32_t> lists[kSumSlots];
  std::vector<std::int32_t>* touched[kSumSlots];
  for (std::size_t i = 0; i < std::size(lists); ++i) touched[i] = &lists[i];
  const SlotPointers dtable{first.raw(), second.raw()}, none{};
  const Array dxs = m.stream(Dims{c.s.rows(), c.d}, dx);
  m.device.embed_backward(sum.s, sum.steps, c.tokens, c.scale, dxs, table, dtable, touched, positions,
                          c.positions.empty() ? none : dpositions);
  m.device.embed_backward(sum.s, sum.steps, c.tokens, c.scale, dxs, table, none, touched, positions, none);
  Results results{{first.values()}};
  if (!c.positions.empty()) results.push_back(dpositions.result());
  results.push_back({second.values()});
  results.push_back({{static_cast<double>(lists[0].size() + lists[1].size())}});
  return results;
}

// logits [rows, padded] -> losses, dlogits, the losses without gradients
inline Results cross_entropy(const Machine& m, std::int64_t vocab, std::int64_t padded, const Numbers& x,
                             const std::vector<std::int32_t>& targets, double scale) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  const Dims shape{rows, padded};
  Array logits = m.stream(shape, x), dlogits = m.operands(shape);
  Array losses(m.device, DType::f64, Dims{rows}), alone(m.device, DType::f64, Dims{rows});
  m.device.cross_entropy(vocab, logits, targets, scale, {}, alone);
  const bool in_place = m.operand == m.device.stream_type();
  m.device.cross_entropy(vocab, logits, targets, scale, in_place ? logits.view() : dlogits.view(), losses);
  return {{losses.values()}, {in_place ? logits.values() : dlogits.values(), true}, {alone.values()}};
}

// --- Arrays.
// -> cap * tanh(x / cap), and the gradient dy passed back through it
inline Results softcap(const Machine& m, double cap, const Numbers& x, const Numbers& dy) {
  const Dims shape{static_cast<std::int64_t>(x.size())};
  Array y = m.stream(shape, x), dx = m.operands(shape, dy);
  m.device.softcap(cap, y);
  m.device.softcap_backward(cap, y, dx);
  return {{y.values()}, {dx.values(), true}};
}

}  // namespace qkv::test
