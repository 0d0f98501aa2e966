// SPDX-License-Identifier: Apache-2.0
#include "attention/naive.h"

#include <cmath>
#include <limits>

namespace qkv::test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One row of scores: those of query i of head h of sequence b with every key.
struct Row {
  std::vector<bool> read;                   // [kv_len] visible
  std::vector<double> raw, raw_bound;       // [kv_len] (q . k) * scale
  std::vector<double> score, bound, probs;  // [kv_len] after softcap, mask and ALiBi
  double lse = -std::numeric_limits<double>::infinity(), condition = 0, sink_prob = 0;
  bool reads = false;
};

class Calculation {
 public:
  explicit Calculation(const NaiveInput& input) : in_(input) {
    const std::int64_t rows = in_.batch * in_.n_head * in_.q_len;
    result_.out = Bounded(rows * in_.d_v);
    result_.lse = Bounded(rows);
    result_.probs = Bounded(rows * in_.kv_len);
    result_.dq = Bounded(static_cast<std::int64_t>(in_.q.size()));
    result_.dk = Bounded(static_cast<std::int64_t>(in_.k.size()));
    result_.dv = Bounded(static_cast<std::int64_t>(in_.v.size()));
    result_.dmask = Bounded(in_.has_mask && !in_.boolean ? static_cast<std::int64_t>(in_.mask.size()) : 0);
    result_.dsinks = Bounded(static_cast<std::int64_t>(in_.sinks.size()));
    scale_ = in_.options.scale.value_or(1 / std::sqrt(static_cast<double>(in_.d_k)));
  }

  NaiveOutput run() {
    for (std::int64_t b = 0; b < in_.batch; ++b)
      for (std::int64_t h = 0; h < in_.n_head; ++h)
        for (std::int64_t i = 0; i < in_.q_len; ++i) query(b, h, i);
    return result_;
  }

 private:
  const double* q(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return &in_.q[at(((b * in_.n_head + h) * in_.q_len + i) * in_.d_k)];
  }
  std::int64_t key_row(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return (b * in_.n_kv_head + h / (in_.n_head / in_.n_kv_head)) * in_.kv_len + j;
  }

  Row scores(std::int64_t b, std::int64_t h, std::int64_t i) const {
    Row row;
    row.read.resize(at(in_.kv_len));
    for (auto* v : {&row.raw, &row.raw_bound, &row.score, &row.bound, &row.probs}) v->resize(at(in_.kv_len));
    double largest = in_.sinks.empty() ? -std::numeric_limits<double>::infinity() : in_.sinks[at(h)];
    for (std::int64_t j = 0; j < in_.kv_len; ++j) {
      if (!in_.may_read(b, h, i, j)) continue;
      row.read[at(j)] = row.reads = true;
      const double* key = &in_.k[at(key_row(b, h, j) * in_.d_k)];
      double dot = 0, size = 0;
      for (std::int64_t c = 0; c < in_.d_k; ++c) {
        dot += q(b, h, i)[c] * key[c];
        size += std::abs(q(b, h, i)[c] * key[c]);
      }
      row.raw[at(j)] = dot * scale_;
      row.raw_bound[at(j)] = size * std::abs(scale_);
      const double cap = in_.options.softcap;
      const double capped = cap > 0 ? cap * std::tanh(dot * scale_ / cap) : dot * scale_;
      const double bias = in_.has_mask && !in_.boolean ? in_.mask[in_.mask_index(b, h, i, j)] : 0;
      const double away = static_cast<double>(std::abs(j - in_.start(b) - i));
      const double alibi = in_.slopes.empty() ? 0 : -in_.slopes[at(h)] * away;
      row.score[at(j)] = capped + bias + alibi;
      row.bound[at(j)] = row.raw_bound[at(j)] + std::abs(capped) + std::abs(bias) + std::abs(alibi);
      if (row.score[at(j)] > largest) largest = row.score[at(j)];
    }
    if (row.reads) normalise(h, largest, row);
    return row;
  }

  void normalise(std::int64_t h, double largest, Row& row) const {
    double sum = 0;
    for (std::size_t j = 0; j < row.read.size(); ++j)
      if (row.read[j]) sum += row.probs[j] = std::exp(row.score[j] - largest);
    const double sink = in_.sinks.empty() ? 0 : std::exp(in_.sinks[at(h)] - largest);
    sum += sink;
    row.sink_prob = sink / sum;
    row.lse = largest + std::log(sum);
    row.condition = std::abs(row.lse);
    double weighted = row.sink_prob > 0 ? row.sink_prob * (1 + std::abs(in_.sinks[at(h)])) : 0;
    for (std::size_t j = 0; j < row.read.size(); ++j) {
      if (!row.read[j]) continue;
      row.probs[j] /= sum;
      weighted += row.probs[j] * (1 + row.bound[j]);
    }
    row.condition += weighted;
  }

  // Relative condition number of probs[j].
  double weight(const Row& row, std::int64_t j) const { return 1 + row.bound[at(j)] + row.condition; }

  static void add(Bounded& to, std::int64_t index, double term, double bound) {
    to.values[at(index)] += term;
    to.bounds[at(index)] += bound;
  }

  void query(std::int64_t b, std::int64_t h, std::int64_t i) {
    const Row row = scores(b, h, i);
    const std::int64_t n = (b * in_.n_head + h) * in_.q_len + i;
    result_.lse.values[at(n)] = row.lse;
    result_.lse.bounds[at(n)] = 1 + row.condition;
    if (!row.reads) return;
    for (std::int64_t j = 0; j < in_.kv_len; ++j) {
      if (!row.read[at(j)]) continue;
      const double prob = row.probs[at(j)];
      add(result_.probs, n * in_.kv_len + j, prob, prob * weight(row, j));
      const double* value = &in_.v[at(key_row(b, h, j) * in_.d_v)];
      const double kept = prob * in_.dropout_factor(b, h, i, j);
      for (std::int64_t c = 0; c < in_.d_v; ++c)
        add(result_.out, n * in_.d_v + c, kept * value[c], kept * weight(row, j) * std::abs(value[c]));
    }
    if (!in_.dout.empty()) gradients(b, h, i, n, row);
  }

  void gradients(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t n, const Row& row) {
    const double* dout = &in_.dout[at(n * in_.d_v)];
    double d = 0, d_bound = 0;  // D = dout . out
    for (std::int64_t c = 0; c < in_.d_v; ++c) {
      d += dout[c] * result_.out.values[at(n * in_.d_v + c)];
      d_bound += std::abs(dout[c]) * result_.out.bounds[at(n * in_.d_v + c)];
    }
    if (!in_.sinks.empty())
      add(result_.dsinks, h, -row.sink_prob * d,
          row.sink_prob > 0 ? row.sink_prob * (2 + std::abs(in_.sinks[at(h)]) + row.condition) * d_bound
                            : row.sink_prob * d_bound);
    for (std::int64_t j = 0; j < in_.kv_len; ++j)
      if (row.read[at(j)]) pair(b, h, i, j, n, row, d, d_bound);
  }

  void pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, std::int64_t n, const Row& row, double d,
            double d_bound) {
    const double* dout = &in_.dout[at(n * in_.d_v)];
    const std::int64_t key = key_row(b, h, j);
    const double prob = row.probs[at(j)];
    const double factor = in_.dropout_factor(b, h, i, j);
    double dprob = 0, dprob_bound = 0;
    for (std::int64_t c = 0; c < in_.d_v; ++c) {
      const double value = in_.v[at(key * in_.d_v + c)];
      dprob += factor * dout[c] * value;
      dprob_bound += std::abs(factor * dout[c] * value);
      add(result_.dv, key * in_.d_v + c, prob * factor * dout[c], prob * factor * weight(row, j) * std::abs(dout[c]));
    }
    const double dmasked = prob * (dprob - d);
    const double plain = prob * (dprob_bound + d_bound), conditioned = plain * weight(row, j);
    if (in_.has_mask && !in_.boolean)
      add(result_.dmask, static_cast<std::int64_t>(in_.mask_index(b, h, i, j)), dmasked, conditioned);
    double slope = 1, bound = conditioned;
    if (const double cap = in_.options.softcap; cap > 0) {
      const double t = std::tanh(row.raw[at(j)] / cap);
      slope = 1 - t * t;
      bound = conditioned * slope + plain * 2 * std::abs(t) * (1 + slope * row.raw_bound[at(j)] / cap);
    }
    for (std::int64_t c = 0; c < in_.d_k; ++c) {
      const double key_c = in_.k[at(key * in_.d_k + c)], query_c = q(b, h, i)[c];
      const std::int64_t query_index = n * in_.d_k + c;
      add(result_.dq, query_index, scale_ * dmasked * slope * key_c, std::abs(scale_ * key_c) * bound);
      add(result_.dk, key * in_.d_k + c, scale_ * dmasked * slope * query_c, std::abs(scale_ * query_c) * bound);
    }
  }

  const NaiveInput& in_;
  NaiveOutput result_;
  double scale_;
};

}  // namespace

std::int64_t NaiveInput::q_length(std::int64_t b) const {
  return options.q_lengths.empty() ? q_len : options.q_lengths[at(b)];
}
std::int64_t NaiveInput::kv_length(std::int64_t b) const {
  return options.kv_lengths.empty() ? kv_len : options.kv_lengths[at(b)];
}
std::int64_t NaiveInput::start(std::int64_t b) const {
  if (options.alignment == Alignment::bottom_right) return kv_length(b) - q_length(b);
  if (options.alignment == Alignment::start) return options.start.at(options.start.size() == 1 ? 0 : at(b));
  return 0;
}

std::size_t NaiveInput::mask_index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const std::int64_t index[] = {b, h, i, j};
  std::int64_t offset = 0;
  for (int axis = 0; axis < mask_shape.rank(); ++axis) {
    const std::int64_t where = mask_shape[axis] == 1 ? 0 : index[axis + 4 - mask_shape.rank()];
    offset = offset * mask_shape[axis] + where;
  }
  return at(offset);
}

bool NaiveInput::in_range(std::int64_t b, std::int64_t i, std::int64_t j) const {
  const std::int64_t position = start(b) + i;
  if (i >= q_length(b) || j >= kv_length(b)) return false;
  if (options.causal && j > position) return false;
  if (options.window_left >= 0 && j < position - options.window_left) return false;
  return options.window_right < 0 || j <= position + options.window_right;
}

bool NaiveInput::may_read(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  if (!in_range(b, i, j)) return false;
  if (!has_mask) return true;
  const double m = mask[mask_index(b, h, i, j)];
  return boolean ? m != 0 : m != -std::numeric_limits<double>::infinity();
}

// Philox 4x32-10, Salmon et al. (2011): key = the seed; counter = query, key / 4, plane, 1; the word key % 4.
double NaiveInput::dropout_factor(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const AttentionDropout& dropout = options.dropout;
  const double threshold = std::round(dropout.p * 4294967296.0);
  if (threshold == 0) return 1;
  std::uint64_t counter[4] = {static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j / 4),
                              static_cast<std::uint64_t>((dropout.first_sequence + b) * n_head + h), 1};
  std::uint64_t key[2] = {dropout.seed & 0xffffffff, dropout.seed >> 32};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = counter[0] * 0xD2511F53, second = counter[2] * 0xCD9E8D57;
    counter[0] = (second >> 32) ^ counter[1] ^ key[0];
    counter[1] = second & 0xffffffff;
    counter[2] = (first >> 32) ^ counter[3] ^ key[1];
    counter[3] = first & 0xffffffff;
    key[0] = (key[0] + 0x9E3779B9) & 0xffffffff;
    key[1] = (key[1] + 0xBB67AE85) & 0xffffffff;
  }
  return static_cast<double>(counter[j % 4]) < threshold ? 0 : 1 / (1 - dropout.p);
}

NaiveOutput naive_attention(const NaiveInput& input) { return Calculation(input).run(); }

}  // namespace qkv::test
