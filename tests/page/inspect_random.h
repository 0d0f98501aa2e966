// SPDX-License-Identifier: Apache-2.0
// A random pass for tests of the inspection page: heads with known behaviour among random ones, over a text in several
// scripts that contains markup. No model computes it, but each row's weights are the softmax of its scores.
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
  std::vector<std::unique_ptr<std::vector<float>>> numbers;      // the arrays that page points to
  std::vector<std::unique_ptr<std::vector<std::int32_t>>> tops;  // top ids of the lens
};

}  // namespace qkv::test
