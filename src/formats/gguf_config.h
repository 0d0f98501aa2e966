// SPDX-License-Identifier: Apache-2.0
// The configuration of a model in the keys of GGUF: architectures `llama` and `gpt2`.
#pragma once

#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "qkv/model.h"

namespace qkv {

enum class GgufFamily : std::uint8_t { llama, gpt2 };
std::string_view gguf_name(GgufFamily family) noexcept;  // "llama"

// Whether a file says of itself that it holds a model of one of these: by its architecture and a key of it.
bool gguf_holds_model(const Gguf& file) noexcept;

GgufFamily read_gguf_family(const Gguf& file);  // throws qkv::FileError for another architecture, by its name

// Resolved. What the keys leave open (biases, a tied head, factors of rotary frequencies) is told by the tensors that
// are there. Every key of the architecture that changes the numbers is honoured, or refused by its name. Throws
// qkv::FileError. Whoever reads the tensors holds the sizes against theirs.
ModelConfig read_gguf_config(const Gguf& file, GgufFamily family);

// The family that a configuration fits exactly. Throws std::invalid_argument that says what fits neither.
GgufFamily gguf_family_of(const ModelConfig& config);
void write_gguf_config(GgufWriter& file, GgufFamily family, const ModelConfig& config);

}  // namespace qkv
