// SPDX-License-Identifier: Apache-2.0
// What `qkv explain` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/explain.h"

namespace qkv::cli {

std::string shape_text(const Dims& shape);  // "[4, 16, 512]"
std::string amount_text(double amount);     // "1,048,576", "33.55 M", "1.21 G"
std::string steps_text(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx, bool causal, DType dtype);
std::string steps_json(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx, bool causal, DType dtype);
std::string example_text(const MultiHeadConfig& layer, std::int64_t ctx, bool causal, std::int64_t head,
                         std::uint64_t seed);
std::string scaling_text(const std::vector<ScalingRow>& rows);

}  // namespace qkv::cli
