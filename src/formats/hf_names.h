// SPDX-License-Identifier: Apache-2.0
// Where Hugging Face's layouts keep qkv's parameters.
#pragma once

#include <string>
#include <string_view>

#include "formats/hf_config.h"
#include "qkv/model.h"

namespace qkv {

// A parameter as part of a stored tensor: transposed if the file has [out, in], and columns [first, first + width) of
// the last axis where several parameters share a tensor (GPT-2's c_attn is q, k and v side by side).
struct HfPlace {
  std::string name;  // with the prefix of a whole model: "transformer.h.0.attn.c_attn.weight"
  Dims shape;        // of the stored tensor
  bool transposed = false;
  std::int64_t first = 0;
};

// config is resolved and info one of its parameter_infos().
HfPlace hf_place(HfFamily family, const ModelConfig& config, const ParameterInfo& info);

// "transformer." or "model.": files of the inner model alone leave it out.
std::string_view hf_prefix(HfFamily family) noexcept;

// Tensors that hold no parameter: masks and frequencies that older versions stored.
bool hf_is_ignored(HfFamily family, std::string_view name) noexcept;

// The part of a stored tensor that is the parameter, [in, out], without a copy.
ConstView hf_part(const HfPlace& place, const ParameterInfo& info, ConstView stored) noexcept;

}  // namespace qkv
