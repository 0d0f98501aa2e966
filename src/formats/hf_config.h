// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face's `transformers` for the architectures that are qkv's too: gpt2 and llama.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/strict_json.h"
#include "qkv/model.h"
#include "qkv/model_file.h"

namespace qkv {

enum class HfFamily : std::uint8_t { gpt2, llama };
std::string_view hf_name(HfFamily family) noexcept;                           // "gpt2", "llama"
std::optional<HfFamily> hf_family_from_name(std::string_view name) noexcept;  // nothing for another name

// The resolved configuration. Every key that changes the numbers is honoured or refused by name (qkv::FileError); what
// only tells of training or of other programs is passed over.
ModelConfig read_hf_config(const JsonPlace& file, HfFamily family);

// `eos_token_id` of config.json or generation_config.json: a number, a list of them, null or absent.
std::vector<std::int32_t> read_hf_end_tokens(const JsonPlace& file);

// The family that a configuration fits exactly. Throws std::invalid_argument that says what fits neither.
HfFamily hf_family_of(const ModelConfig& config);

// config.json as `transformers` reads it (version 4 and later). dtype: "float32", "float16" or "bfloat16".
std::string hf_config_text(HfFamily family, const ModelConfig& config, const std::string& dtype,
                           const std::vector<std::int32_t>& end_tokens, const NamedTokens& named);
std::string hf_generation_config_text(const std::vector<std::int32_t>& end_tokens, const NamedTokens& named);

}  // namespace qkv
