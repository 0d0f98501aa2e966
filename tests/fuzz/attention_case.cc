// SPDX-License-Identifier: Apache-2.0
#include "fuzz/attention_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMax = std::numeric_limits<float>::max();
constexpr double kSafe = 1e37;  // sums of absolute values up to this cannot overflow f32

// rounded() of arrays.h, but faster.
double round_to(double x, DType dtype) {
  if (dtype == DType::bf16) return to_f32(to_bf16(static_cast<float>(x)));
  if (dtype == DType::f16) return to_f32(to_f16(static_cast<float>(x)));
  return dtype == DType::f32 ? static_cast<float>(x) : x;
}

void make_sizes(Bytes& bytes, NaiveInput& in) {
  // Small, so that many cases run; first_key shifts the absolute positions at which tiles and splits of keys begin.
  const int large = bytes.next();
  const bool wide = large >= 252, long_keys = large % 64 == 33, long_queries = large % 64 == 34;
  in.batch = bytes.one_in(5) ? bytes.from(0, 2) : 1;
  in.n_kv_head = bytes.one_in(4) ? 2 : 1;
  in.n_head = in.n_kv_head * (bytes.one_in(4) ? bytes.from(1, 4) : 1);
  in.q_len = bytes.from(0, long_queries ? 52 : 6);
  in.kv_len = bytes.from(0, long_keys ? 80 : 12);
  in.d_k = bytes.from(1, wide ? 40 : 9);
  in.d_v = bytes.one_in(2) ? bytes.from(1, wide ? 40 : 9) : in.d_k;
}

void make_positions(Bytes& bytes, NaiveInput& in) {
  AttentionOptions& o = in.options;
  const Alignment all[] = {Alignment::none, Alignment::top_left, Alignment::bottom_right, Alignment::start};
  o.alignment = bytes.pick(all);
  if (o.alignment == Alignment::start) {
    const std::int64_t count = bytes.one_in(2) ? in.batch : 1;
    for (std::int64_t n = 0; n < count; ++n)
      o.start.push_back(bytes.one_in(16) ? (bytes.one_in(2) ? -1 : 1) * (std::int64_t{1} << bytes.from(10, 40))
                                         : bytes.from(-12, 24));
  }
  if (bytes.one_in(3))
    for (std::int64_t b = 0; b < in.batch; ++b) o.q_lengths.push_back(bytes.from(0, in.q_len));
  if (bytes.one_in(3))
    for (std::int64_t b = 0; b < in.batch; ++b) o.kv_lengths.push_back(bytes.from(0, in.kv_len));
  // Sums are split at absolute positions: stay near every kind of boundary.
  const std::int64_t firsts[] = {0, 0, 0, 64, 256, 512, 768, std::int64_t{1} << 40};
  o.first_key = std::max<std::int64_t>(0, bytes.pick(firsts) - bytes.from(0, 40));
  if (o.alignment == Alignment::none) return;
  o.causal = bytes.one_in(2);
  if (bytes.one_in(3)) o.window_left = bytes.one_in(8) ? std::int64_t{1} << 62 : bytes.from(0, 12);
  if (bytes.one_in(4)) o.window_right = bytes.one_in(8) ? std::int64_t{1} << 62 : bytes.from(0, 12);
}

void make_numbers(Bytes& bytes, Draw& draw, NaiveInput& in) {
  const double scales[] = {1, 0, -1, 0.3, 1e-40, 1e-30, 3e38, 1e20, -1e-20, 7};
  if (bytes.one_in(3)) in.options.scale = round_to(bytes.pick(scales), DType::f32);
  const double caps[] = {1, 0.25, 30, 1e-30, 1e30};
  if (bytes.one_in(4)) in.options.softcap = round_to(bytes.pick(caps), DType::f32);
  if (in.options.alignment != Alignment::none && bytes.one_in(4))
    for (std::int64_t h = 0; h < in.n_head; ++h) in.slopes.push_back(round_to(draw.uniform(-0.1, 0.6), DType::f32));
  if (bytes.one_in(4)) {
    const double sinks[] = {0, 2, -3, 80, -80, -kInfinity, 1e4};
    for (std::int64_t h = 0; h < in.n_head; ++h) in.sinks.push_back(bytes.pick(sinks));
  }
}

void make_mask(Bytes& bytes, Draw& draw, NaiveInput& in, DType dtype) {
  in.has_mask = bytes.one_in(2);
  if (!in.has_mask) return;
  in.boolean = bytes.one_in(2);
  const std::int64_t full[] = {in.batch, in.n_head, in.q_len, in.kv_len};
  const int rank = static_cast<int>(bytes.from(0, 4)), broadcast = bytes.next();
  std::int64_t sizes[4];
  for (int axis = 0; axis < rank; ++axis) sizes[axis] = broadcast >> axis & 1 ? 1 : full[axis + 4 - rank];
  in.mask_shape = Dims(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(rank)));
  const double blocked = static_cast<double>(bytes.next()) / 255;
  const double lowest = dtype == DType::f16 ? -65504 : (dtype == DType::bf16 ? -3.3895e38 : -kMax);
  const double specials[] = {0, lowest, -1e4, 50, dtype == DType::f16 ? -1e4 : -1e30};
  const double special = bytes.pick(specials), often = bytes.one_in(4) ? 0.5 : 0;
  for (std::int64_t n = element_count(in.mask_shape); n > 0; --n) {
    const bool block = draw.chance(blocked * blocked);
    const double value = draw.chance(often) ? special : draw.normal();
    in.mask.push_back(in.boolean ? !block : (block ? -kInfinity : round_to(value, dtype)));
  }
}

// Values of one array: random numbers of some scale, with every `every`-th one special.
std::vector<double> make_values(Bytes& bytes, Draw& draw, std::int64_t count, DType dtype) {
  const bool half = dtype == DType::f16;
  const double sizes[] = {1, 1, 1, 1, 0, 30, 1e-3, half ? 1e-6 : 1e-39, half ? 1e3 : 1e9, half ? 1e4 : 1e18};
  const double specials[] = {0, -0.0, 1, 200, -200, half ? 6e-8 : 1e-45, half ? 65504 : 1e15, half ? -65504 : kMax};
  const double size = bytes.pick(sizes), special = bytes.pick(specials);
  const std::int64_t every = bytes.one_in(4) ? bytes.from(1, 20) : 0;
  std::vector<double> all(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) {
    const double x = size == 0 ? 0 : size * draw.normal();
    const double limit = half ? 65504 : (dtype == DType::bf16 ? 3.38e38 : kMax);
    all[static_cast<std::size_t>(n)] =
        round_to(std::clamp(every > 0 && n % every == 0 ? special : x, -limit, limit), dtype);
  }
  return all;
}

void poison_row(std::vector<double>& rows, std::int64_t row, std::int64_t d, double value) {
  std::fill_n(rows.begin() + row * d, d, value);
}

// NaN or inf in each query without visible keys, each key that no query sees, and each mask element out of range.
void poison_unread(NaiveInput& in, double poison) {
  const std::int64_t group = in.n_head / in.n_kv_head;
  const bool full_mask = in.has_mask && !in.boolean && in.mask_shape == Dims{in.batch, in.n_head, in.q_len, in.kv_len};
  std::vector<bool> key_read(static_cast<std::size_t>(in.batch * in.n_kv_head * in.kv_len));
  for (std::int64_t b = 0; b < in.batch; ++b)
    for (std::int64_t h = 0; h < in.n_head; ++h)
      for (std::int64_t i = 0; i < in.q_len; ++i) {
        bool reads = false;
        for (std::int64_t j = 0; j < in.kv_len; ++j) {
          if (full_mask && !in.in_range(b, i, j)) in.mask[in.mask_index(b, h, i, j)] = kNaN;
          if (!in.may_read(b, h, i, j)) continue;
          reads = true;
          key_read[static_cast<std::size_t>((b * in.n_kv_head + h / group) * in.kv_len + j)] = true;
        }
        if (reads) continue;
        const std::int64_t row = (b * in.n_head + h) * in.q_len + i;
        poison_row(in.q, row, in.d_k, poison);
        poison_row(in.dout, row, in.d_v, poison);
      }
  for (std::size_t key = 0; key < key_read.size(); ++key) {
    if (key_read[key]) continue;
    poison_row(in.k, static_cast<std::int64_t>(key), in.d_k, poison);
    poison_row(in.v, static_cast<std::int64_t>(key), in.d_v, poison);
  }
}

// NaN or infinities in visible elements.
void plant(Bytes& bytes, AttentionCase& c) {
  NaiveInput& in = c.input;
  std::vector<double>* const all[] = {&in.q, &in.k, &in.v, &in.dout};
  for (std::int64_t count = bytes.from(1, 3); count > 0; --count) {
    std::vector<double>& array = *bytes.pick(all);
    const std::size_t place = static_cast<std::size_t>(bytes.next() * 256 + bytes.next());
    const double values[] = {kNaN, kNaN, kInfinity, -kInfinity};
    const double value = bytes.pick(values);
    if (array.empty()) continue;
    array[place % array.size()] = value;
    if (std::isnan(value)) continue;
    c.infinite = true;
    // An infinite score is not comparable: 0 * inf and inf - inf depend on the order of operations.
    if (&array == &in.q || &array == &in.k) c.forward_comparable = false;
  }
}

void make_dropout(Bytes& bytes, NaiveInput& in, std::uint64_t seed) {
  const double all[] = {0.5, 0.1, 0.25, 0.9, 0.999, 1e-12};
  const std::int64_t firsts[] = {0, 1, 77, 1000000};
  in.options.dropout = {.p = bytes.pick(all), .seed = seed * 0x10001, .first_sequence = bytes.pick(firsts)};
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x)
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  return most;
}

// Derives from the largest numbers whether f32 sums may overflow anywhere, and the effect of underflow.
void set_limits(AttentionCase& c) {
  const NaiveInput& in = c.input;
  const double kept = 1 / (1 - in.options.dropout.p);
  const double q = largest(in.q), k = largest(in.k), v = kept * largest(in.v), dout = kept * largest(in.dout);
  const double scale = std::abs(in.options.scale.value_or(1 / std::sqrt(static_cast<double>(in.d_k))));
  const auto d_k = static_cast<double>(in.d_k), d_v = static_cast<double>(in.d_v);
  const double keys = static_cast<double>(in.kv_len), rows = static_cast<double>(in.batch * in.n_head * in.q_len);
  const double dots = d_k * q * k;  // the mask bias is added to it, and may be the lowest float
  if (!(dots < kSafe / 8 && dots * scale < kSafe / 8 && 512 * (keys + 1) * v < kSafe)) c.forward_comparable = false;
  // bf16 products flush denormals to 0, so a score may be off by that times the other factor.
  if (!(0x1p-126 * d_k * (q + k) * (1 + scale) < 1e-12)) c.forward_comparable = false;
  // naive.h's bounds are first-order: a score's error must be small compared to 1.
  double farthest = keys + static_cast<double>(in.q_len);
  for (const std::int64_t start : in.options.start)
    farthest = std::max(farthest, std::abs(static_cast<double>(start)) + keys + static_cast<double>(in.q_len));
  if (!(0x1p-21 * (dots * scale + largest(in.slopes) * farthest) < 0.1)) c.forward_comparable = false;
  // The slope of a softcap changes with a score's error relative to the cap.
  const double cap = in.options.softcap > 0 ? in.options.softcap : kSafe;
  const bool known_slope = (0x1p-21 * dots + 0x1p-126 * d_k * (q + k)) * scale < 1e-3 * cap;
  const double sums = (512 * (keys + 1) + rows) * (1 + q + k) * (1 + scale);  // the largest factor on dp or dout
  c.backward_comparable = c.forward_comparable && known_slope && d_v * dout * (1 + v) * (keys + 1) * sums < kSafe;
  // Dropout can scale out, and with it delta = dout . out, past the range of f16.
  if (c.out_dtype == DType::f16 && v > 65000 && kept > 1) c.backward_comparable = false;
  c.floor = 0x1p-120 * (1 + keys) * (1 + v) + 0x1p-120 * d_v * (1 + dout) * (1 + v) * (keys + 1) * sums;
  if (c.out_dtype == DType::f16)  // out is stored as f16 denormals, and delta = dout . out is computed from it
    c.floor += 0x1p-24 * d_v * dout * (1 + (q + k) * scale) * (1 + rows);
}

}  // namespace

AttentionCase make_attention_case(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  AttentionCase c;
  std::uint64_t seed = 0;
  for (int i = 0; i < 4; ++i) seed = seed << 8 | static_cast<std::uint64_t>(bytes.next());
  Draw draw(seed, 1);
  c.layout_seed = seed;
  const DType types[] = {DType::f32, DType::f32, DType::bf16, DType::bf16, DType::f16};
  const DType mask_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
  c.dtype = bytes.pick(types);
  c.mask_dtype = bytes.pick(mask_types);
  c.dout_dtype = bytes.one_in(3) ? bytes.pick(types) : c.dtype;
  c.out_dtype = bytes.one_in(2) ? c.dtype : DType::f32;
  c.gradient_dtype = bytes.one_in(3) ? c.dtype : DType::f32;
  c.wants_probs = bytes.one_in(2);
  c.reference_too = bytes.one_in(8);
  NaiveInput& in = c.input;
  make_sizes(bytes, in);
  make_positions(bytes, in);
  make_numbers(bytes, draw, in);
  make_mask(bytes, draw, in, c.mask_dtype);
  in.q = make_values(bytes, draw, in.batch * in.n_head * in.q_len * in.d_k, c.dtype);
  in.k = make_values(bytes, draw, in.batch * in.n_kv_head * in.kv_len * in.d_k, c.dtype);
  in.v = make_values(bytes, draw, in.batch * in.n_kv_head * in.kv_len * in.d_v, c.dtype);
  in.dout = make_values(bytes, draw, in.batch * in.n_head * in.q_len * in.d_v, c.dout_dtype);
  if (bytes.one_in(6)) plant(bytes, c);
  if (bytes.one_in(4)) make_dropout(bytes, in, seed);
  set_limits(c);
  if (bytes.one_in(2)) poison_unread(in, bytes.one_in(3) ? kInfinity : kNaN);
  return c;
}

std::string AttentionCase::words() const {
  const NaiveInput& in = input;
  const AttentionOptions& o = in.options;
  std::ostringstream s;
  s << dtype_name(dtype) << " dout " << dtype_name(dout_dtype) << " out " << dtype_name(out_dtype) << " gradients "
    << dtype_name(gradient_dtype) << " batch " << in.batch << " heads " << in.n_head << "/" << in.n_kv_head << " q_len "
    << in.q_len << " kv_len " << in.kv_len << " d " << in.d_k << "/" << in.d_v << " causal " << o.causal
    << " alignment " << static_cast<int>(o.alignment) << " window " << o.window_left << "," << o.window_right
    << " scale " << o.scale.value_or(-1e99) << " softcap " << o.softcap << " first_key " << o.first_key << " dropout "
    << o.dropout.p << " largest " << largest(in.q) << " " << largest(in.k) << " " << largest(in.v) << " "
    << largest(in.dout);
  if (in.has_mask) s << " mask " << (in.boolean ? "bool " : dtype_name(mask_dtype)) << to_string(in.mask_shape);
  for (const auto& [name, list] :
       {std::pair{"start", o.start}, {"q_lengths", o.q_lengths}, {"kv_lengths", o.kv_lengths}}) {
    if (!list.empty()) s << " " << name;
    for (const std::int64_t x : list) s << " " << x;
  }
  for (const auto& [name, list] : {std::pair{"slopes", in.slopes}, {"sinks", in.sinks}}) {
    if (!list.empty()) s << " " << name;
    for (const double x : list) s << " " << x;
  }
  return s.str();
}

}  // namespace qkv::test
