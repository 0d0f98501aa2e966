// SPDX-License-Identifier: Apache-2.0
#include "attention/random_case.h"

#include <limits>
#include <sstream>

namespace qkv::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void random_sizes(Draw& draw, NaiveInput& in) {
  const bool large = draw.chance(0.06);  // larger than one or two tiles of 64 keys or 48 queries
  in.batch = draw.chance(0.02) ? 0 : draw.from(1, 3);
  in.n_kv_head = draw.from(1, large ? 1 : 3);
  in.n_head = in.n_kv_head * draw.from(1, large ? 2 : 4);
  in.q_len = draw.chance(0.03) ? 0 : draw.from(1, large ? 140 : 18);
  in.kv_len = draw.chance(0.03) ? 0 : draw.from(1, large ? 210 : 24);
  if (draw.chance(0.1)) in.q_len = 1;
  if (!large && draw.chance(0.15)) in.kv_len = draw.from(60, 135);
  in.d_k = draw.from(1, large ? 20 : 24);
  in.d_v = draw.chance(0.5) ? in.d_k : draw.from(1, 24);
  if (!large && draw.chance(0.08)) in.d_k = draw.from(60, 70);
  if (!large && draw.chance(0.08)) in.d_v = draw.from(60, 70);
}

void random_positions(Draw& draw, NaiveInput& in) {
  AttentionOptions& o = in.options;
  const Alignment all[] = {Alignment::none, Alignment::top_left, Alignment::bottom_right, Alignment::start};
  o.alignment = all[draw.from(0, 3)];
  if (o.alignment == Alignment::start) {
    const std::int64_t count = draw.chance(0.5) ? 1 : in.batch;
    for (std::int64_t n = 0; n < count; ++n) o.start.push_back(draw.from(-in.q_len - 2, in.kv_len + 3));
  }
  if (draw.chance(0.3))
    for (std::int64_t b = 0; b < in.batch; ++b) o.q_lengths.push_back(draw.from(0, in.q_len));
  if (draw.chance(0.35))
    for (std::int64_t b = 0; b < in.batch; ++b) o.kv_lengths.push_back(draw.from(0, in.kv_len));
  if (o.alignment == Alignment::none) return;
  o.causal = draw.chance(0.6);
  if (draw.chance(0.35)) o.window_left = draw.from(0, draw.chance(0.5) ? 4 : in.kv_len);
  if (draw.chance(0.25)) o.window_right = draw.from(0, draw.chance(0.5) ? 4 : in.kv_len);
  if (draw.chance(0.25))
    for (std::int64_t h = 0; h < in.n_head; ++h) in.slopes.push_back(rounded(draw.uniform(-0.1, 0.6), DType::f32));
}

double mask_value(Draw& draw, double blocked) {
  if (draw.chance(blocked)) return -kInfinity;
  if (draw.chance(0.02)) return -1e30;  // so large that even f64 rounds the score away
  if (draw.chance(0.02)) return std::numeric_limits<float>::lowest();
  return draw.normal();
}

void random_mask(Draw& draw, NaiveInput& in, DType dtype) {
  in.has_mask = draw.chance(0.55);
  if (!in.has_mask) return;
  in.boolean = draw.chance(0.45);
  const std::int64_t full[] = {in.batch, in.n_head, in.q_len, in.kv_len};
  const int rank = static_cast<int>(draw.from(0, 4));
  std::int64_t sizes[4];
  for (int axis = 0; axis < rank; ++axis) sizes[axis] = draw.chance(0.35) ? 1 : full[axis + 4 - rank];
  in.mask_shape = Dims(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(rank)));
  const double blocked = draw.uniform(0, draw.chance(0.2) ? 1 : 0.5);
  for (std::int64_t n = element_count(in.mask_shape); n > 0; --n) {
    const double value = mask_value(draw, blocked);
    in.mask.push_back(in.boolean ? (value == -kInfinity ? 0 : 1) : rounded(value, dtype));
  }
}

void random_values(Draw& draw, NaiveInput& in, DType dtype) {
  const double sizes[] = {1, 1, 1, 0.05, 4};
  const double deviation = sizes[draw.from(0, 4)];
  const auto numbers = [&](std::int64_t rows, std::int64_t d, double size) {
    std::vector<double> all(static_cast<std::size_t>(rows * d));
    for (double& x : all) x = rounded(size * draw.normal(), dtype);
    return all;
  };
  in.q = numbers(in.batch * in.n_head * in.q_len, in.d_k, deviation);
  in.k = numbers(in.batch * in.n_kv_head * in.kv_len, in.d_k, 1);
  in.v = numbers(in.batch * in.n_kv_head * in.kv_len, in.d_v, 1);
  in.dout = numbers(in.batch * in.n_head * in.q_len, in.d_v, 1);
}

void poison_row(std::vector<double>& rows, std::int64_t row, std::int64_t d) {
  std::fill_n(rows.begin() + row * d, d, kNaN);
}

// NaN in each query without visible keys and in each key that no query sees.
void poison_unread(NaiveInput& in) {
  const std::int64_t group = in.n_head / in.n_kv_head;
  std::vector<bool> key_read(static_cast<std::size_t>(in.batch * in.n_kv_head * in.kv_len));
  for (std::int64_t b = 0; b < in.batch; ++b)
    for (std::int64_t h = 0; h < in.n_head; ++h)
      for (std::int64_t i = 0; i < in.q_len; ++i) {
        bool reads = false;
        for (std::int64_t j = 0; j < in.kv_len; ++j) {
          if (!in.may_read(b, h, i, j)) continue;
          reads = true;
          key_read[static_cast<std::size_t>((b * in.n_kv_head + h / group) * in.kv_len + j)] = true;
        }
        if (reads) continue;
        const std::int64_t row = (b * in.n_head + h) * in.q_len + i;
        poison_row(in.q, row, in.d_k);
        poison_row(in.dout, row, in.d_v);
      }
  for (std::size_t key = 0; key < key_read.size(); ++key) {
    if (key_read[key]) continue;
    poison_row(in.k, static_cast<std::int64_t>(key), in.d_k);
    poison_row(in.v, static_cast<std::int64_t>(key), in.d_v);
  }
}

// NaN in a full-size floating mask where the ranges already exclude the key.
void poison_mask(NaiveInput& in) {
  if (!in.has_mask || in.boolean || !(in.mask_shape == Dims{in.batch, in.n_head, in.q_len, in.kv_len})) return;
  for (std::int64_t b = 0; b < in.batch; ++b)
    for (std::int64_t h = 0; h < in.n_head; ++h)
      for (std::int64_t i = 0; i < in.q_len; ++i)
        for (std::int64_t j = 0; j < in.kv_len; ++j)
          if (!in.in_range(b, i, j)) in.mask[in.mask_index(b, h, i, j)] = kNaN;
}

// A visible NaN: it must reach exactly the outputs that depend on it.
void plant_readable(Draw& draw, NaiveInput& in) {
  std::vector<double>* const all[] = {&in.q, &in.k, &in.v, &in.dout};
  std::vector<double>& array = *all[draw.from(0, 3)];
  if (!array.empty()) array[static_cast<std::size_t>(draw.from(0, static_cast<std::int64_t>(array.size()) - 1))] = kNaN;
}

std::string describe(const RandomCase& c) {
  const NaiveInput& in = c.input;
  const AttentionOptions& o = in.options;
  std::ostringstream s;
  s << dtype_name(c.dtype) << " batch " << in.batch << " heads " << in.n_head << "/" << in.n_kv_head << " q_len "
    << in.q_len << " kv_len " << in.kv_len << " d " << in.d_k << "/" << in.d_v << " causal " << o.causal
    << " alignment " << static_cast<int>(o.alignment) << " window " << o.window_left << "," << o.window_right
    << " softcap " << o.softcap << " first_key " << o.first_key << " dropout " << o.dropout.p << " alibi "
    << !in.slopes.empty() << " sinks " << !in.sinks.empty();
  if (in.has_mask) s << " mask " << (in.boolean ? "bool " : dtype_name(c.mask_dtype)) << to_string(in.mask_shape);
  for (const auto& [name, list] :
       {std::pair{"start", o.start}, {"q_lengths", o.q_lengths}, {"kv_lengths", o.kv_lengths}}) {
    if (!list.empty()) s << " " << name;
    for (std::int64_t x : list) s << " " << x;
  }
  return s.str();
}

}  // namespace

RandomCase RandomCase::draw(Draw& draw) {
  RandomCase c{};
  c.dtype = draw.chance(0.7) ? DType::f32 : (draw.chance(0.5) ? DType::bf16 : DType::f16);
  const DType mask_types[] = {DType::f32, DType::f32, DType::f64, DType::bf16, DType::f16};
  c.mask_dtype = mask_types[draw.from(0, 4)];
  NaiveInput& in = c.input;
  random_sizes(draw, in);
  random_positions(draw, in);
  random_mask(draw, in, c.mask_dtype);
  random_values(draw, in, c.dtype);
  if (draw.chance(0.2)) in.options.softcap = rounded(draw.uniform(0.5, 30), DType::f32);
  if (draw.chance(0.3)) in.options.scale = rounded(draw.chance(0.1) ? 0 : draw.uniform(-1, 1.5), DType::f32);
  if (draw.chance(0.25))
    for (std::int64_t h = 0; h < in.n_head; ++h)
      in.sinks.push_back(draw.chance(0.1) ? -kInfinity : rounded(2 * draw.normal(), DType::f32));
  if (draw.chance(0.25)) in.options.first_key = draw.from(0, 300);
  if (draw.chance(0.5)) {
    poison_unread(in);
    poison_mask(in);
  }
  if (draw.chance(0.05)) plant_readable(draw, in);
  if (draw.chance(0.25))
    in.options.dropout = {.p = draw.chance(0.1) ? 0.999 : draw.uniform(0, 0.8),
                          .seed = static_cast<std::uint64_t>(draw.from(0, std::int64_t{1} << 62)) * 3,
                          .first_sequence = draw.chance(0.5) ? 0 : draw.from(0, 1000000)};
  c.words = describe(c);
  return c;
}

}  // namespace qkv::test
