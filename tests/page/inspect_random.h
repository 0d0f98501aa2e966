// SPDX-License-Identifier: Apache-2.0
// A drawn pass for tests of the inspection page: heads that behave in known ways among heads that do not, over a text
// in several scripts with markup in it. No model computes it, but each row's weights are the softmax of its scores.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "page/inspect_page.h"

namespace qkv::test {

struct RandomPass {
  RandomPass(std::int64_t n_layer, std::int64_t n_head, std::int64_t ctx, std::int64_t d_k, std::uint64_t seed = 1);

  InspectPage page;
  std::vector<std::unique_ptr<std::vector<float>>> numbers;      // what page points at
  std::vector<std::unique_ptr<std::vector<std::int32_t>>> tops;  // ids of the lens
};

}  // namespace qkv::test
