// SPDX-License-Identifier: Apache-2.0
// Input and output of a model: token and position embeddings, and the loss -ln softmax(logits)[target] in nats.
#include <algorithm>

#include "core/float_types.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_matrix.h"
#include "device/cpu/tasks.h"
#include "kernels/row_kernels.h"

namespace qkv {
namespace {

// The embedding of a token -> to [d]
void token_row(const TokenTable& table, std::int32_t token, std::int64_t d, float* to) {
  if (!table.rows) return matrix_column(*table.columns, token, to);
  if (table.rows.dtype == DType::f32)
    std::copy_n(data_of<float>(table.rows) + token * d, d, to);
  else
    row_kernels().half.to_f32(d, data_of<bf16>(table.rows) + token * d, to);
}

}  // namespace

void CpuDevice::embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
                      const TokenTable& table, double scale, const ConstView& positions, const View& x) {
  const std::int64_t d = width_of(x);
  parallel_ranges(s.rows(), rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / s.ctx, t = i % s.ctx;
      float* xi = data_of<float>(x) + i * d;  // [d]
      if (t >= s.length(b)) {
        std::fill_n(xi, d, 0.0f);
        continue;
      }
      token_row(table, tokens[static_cast<std::size_t>(i)], d, xi);
      for (std::int64_t j = 0; j < d && scale != 1; ++j) xi[j] *= static_cast<float>(scale);
      if (!positions) continue;
      const float* position = data_of<float>(positions) + (first_position + t) * d;  // [d]
      for (std::int64_t j = 0; j < d; ++j) xi[j] += position[j];
    }
  });
}

namespace {

// The rows moved by each step, from the slots' lists of touched rows, so that the columns' tasks are independent.
// -> [steps]: the rows that a step moves from one slot to another
template <class TokensOf>
std::vector<std::vector<std::int32_t>> moved_rows(std::span<const SumStep> steps, const TokensOf& tokens_of,
                                                  std::span<std::vector<std::int32_t>* const> touched) {
  std::vector<std::vector<std::int32_t>> moved;
  for (const SumStep& step : steps) {
    std::vector<std::int32_t>& to = *touched[static_cast<std::size_t>(step.to)];
    std::vector<std::int32_t>& rows = moved.emplace_back();
    if (step.from >= 0) {
      rows.swap(*touched[static_cast<std::size_t>(step.from)]);
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    }
    if (step.to == 0) continue;
    const auto more = step.from >= 0 ? std::span<const std::int32_t>(rows) : tokens_of(step.sequence);
    to.insert(to.end(), more.begin(), more.end());
  }
  return moved;
}

}  // namespace

void CpuDevice::embed_backward(const Sequences& s, std::span<const SumStep> steps, std::span<const std::int32_t> tokens,
                               double scale, const ConstView& dx, const Dims& table, const SlotPointers& dtable,
                               std::span<std::vector<std::int32_t>* const> touched, const Dims& positions,
                               const SlotPointers& dpositions) {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t d = width_of(dx);
  const float* slopes = data_of<float>(dx);
  const auto tokens_of = [&](std::int64_t b) {
    return tokens.subspan(static_cast<std::size_t>(b * s.ctx), static_cast<std::size_t>(s.length(b)));
  };
  if (dtable[0]) {
    const auto moved = moved_rows(steps, tokens_of, touched);
    const auto factor = static_cast<float>(scale);
    const auto slot = [&](int i) { return static_cast<float*>(dtable[static_cast<std::size_t>(i)]); };  // [vocab, d]
    parallel_ranges(d, kColumns, [&](std::int64_t first, std::int64_t last) {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const SumStep& step = steps[i];
        float* to = slot(step.to);
        if (step.from >= 0) {
          float* from = slot(step.from);
          for (const std::int32_t row : moved[i])
            for (std::int64_t j = row * d + first; j < row * d + last; ++j) {
              to[j] += from[j];
              from[j] = 0;
            }
          continue;
        }
        if (step.fresh && step.to == 0)
          for (std::int64_t row = 0; row < table[0]; ++row) std::fill(to + row * d + first, to + row * d + last, 0.0f);
        const auto ids = tokens_of(step.sequence);
        const float* dxi = slopes + step.sequence * s.ctx * d;  // [ctx, d]
        for (std::size_t t = 0; t < ids.size(); ++t, dxi += d)
          for (std::int64_t j = first; j < last; ++j) to[ids[t] * d + j] += factor * dxi[j];
      }
    });
  }
  if (!dpositions[0]) return;
  add_leaves<float>(steps, dpositions, positions[0] * d,
                    [&](std::int64_t b, std::int64_t first, std::int64_t count, float* leaf) {
                      const float* row = slopes + b * s.ctx * d;  // [ctx, d]
                      for (std::int64_t j = 0; j < count && first + j < s.length(b) * d; ++j) leaf[j] = row[first + j];
                    });
}

void CpuDevice::cross_entropy(std::int64_t vocab, const View& logits, std::span<const std::int32_t> targets,
                              double scale, const View& dlogits, const View& losses) {
  const std::int64_t padded = width_of(logits);
  with_operand(dlogits ? dlogits.dtype : DType::f32, [&]<class S>(S) {
    parallel_ranges(rows_of(logits), rows_per_task(vocab), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        data_of<double>(losses)[i] = row_kernels().of<S>().cross_entropy(
            vocab, padded, data_of<float>(logits) + i * padded, targets[static_cast<std::size_t>(i)],
            static_cast<float>(scale), dlogits ? data_of<S>(dlogits) + i * padded : nullptr);
    });
  });
}

}  // namespace qkv
