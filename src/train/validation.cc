// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include <algorithm>
#include <span>
#include <vector>

namespace qkv {

Loss validation_loss(Model& model, const TokenPart& part, std::int64_t ctx, std::int64_t batch_size,
                     std::int64_t batches, const std::function<bool()>& stop) {
  const std::int64_t windows = (part.size() - 1 + ctx - 1) / ctx;
  const std::int64_t count = batches > 0 ? std::min(windows, batches * batch_size) : windows;
  const auto length = static_cast<std::size_t>(ctx);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch_size) * length);   // [batch_size, ctx]
  std::vector<std::int32_t> targets(static_cast<std::size_t>(batch_size) * length);  // [batch_size, ctx]
  Loss total;
  for (std::int64_t first = 0; first < count; first += batch_size) {
    if (stop && stop()) throw StepStopped();
    const std::int64_t rows = std::min(batch_size, count - first);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t window = (first + i) * windows / count;
      const std::size_t at = static_cast<std::size_t>(i) * length;
      part.read_window(window * ctx, std::span(tokens).subspan(at, length), std::span(targets).subspan(at, length));
    }
    const std::size_t used = static_cast<std::size_t>(rows) * length;
    const Loss loss = model.loss({rows, ctx, std::span(tokens).first(used), std::span(targets).first(used), {}});
    total.sum += loss.sum;
    total.count += loss.count;
  }
  return total;
}

}  // namespace qkv
