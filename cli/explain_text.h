// SPDX-License-Identifier: Apache-2.0
// The output of `qkv explain`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/explain.h"

namespace qkv::cli {

std::string amount_text(double amount);  // "1,048,576", "33.55 M", "1.21 G"

struct ExplainedLayer {
  MultiHeadConfig sizes;  // resolved
  std::int64_t batch = 4, ctx = 16;
  std::optional<LayerConfig> own = {};  // the options of a model's layer, resolved; nothing: a plain layer
  std::string title = {};               // "layer 3 of 12"; empty unless layers differ
  bool causal = true;
  DType dtype = DType::f32;

  std::vector<ExplainedStep> steps() const;
};
std::string steps_text(const ExplainedLayer& layer);
std::string steps_json(const ExplainedLayer& layer);
std::string example_text(const MultiHeadConfig& layer, std::int64_t ctx, bool causal, std::int64_t head,
                         std::uint64_t seed);
std::string scaling_text(const std::vector<ScalingRow>& rows);

}  // namespace qkv::cli
