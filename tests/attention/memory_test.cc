// SPDX-License-Identifier: Apache-2.0
// The tiled path never allocates a q_len x kv_len matrix. A separate program, since it measures the peak memory of the
// process.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "attention/arrays.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

// Peak memory so far, in MiB.
double peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// 12,288 queries and keys: a score matrix would take 576 MiB in f32 and 144 MiB in bool.
constexpr std::int64_t kLength = 12'288;
constexpr double kMax = 48;  // MiB besides inputs and outputs, with 4 threads

TEST(Memory, DoesNotGrowWithTheProductOfTheLengths) {
  const Tensor q = random({1, 1, kLength, 8}, 1), k = random({1, 1, kLength, 8}, 2), v = random({1, 1, kLength, 8}, 3);
  const Tensor row = random({kLength}, 4);
  Tensor out(q.shape()), lse({1, 1, kLength}), dq(q.shape()), dk(q.shape()), dv(q.shape()), dmask({kLength});
  set_num_threads(4);
  AttentionOptions options;
  options.path = AttentionPath::tiled;
  options.causal = true;
  options.alignment = Alignment::top_left;
  const double before = peak();
  attention(q, k, v, options, {out, lse, {}});
  EXPECT_LT(peak() - before, kMax);
  options.mask = row;
  attention(q, k, v, options, {out, lse, {}});
  EXPECT_LT(peak() - before, kMax);
  attention_backward(q, k, v, out, lse, out, options, {dq, dk, dv, dmask, {}});
  EXPECT_LT(peak() - before, kMax);
}

}  // namespace
}  // namespace qkv::test
