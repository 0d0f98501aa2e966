// SPDX-License-Identifier: Apache-2.0
// The arithmetic of low-rank adapters (qkv/lora.h): W = W0 + scale * A^T B^T, and what dW says of A and B.
#pragma once

#include <vector>

#include "qkv/lora.h"

namespace qkv {

// to = base + scale * A^T B^T for the adapted matrices. base [i] and to [i]: of parameters[i], which is module's i-th.
// All of one dtype and of shapes that fit.
void merge_lora(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& base,
                const std::vector<Tensor*>& to);

// dW^T = dy x^T of the whole matrix gives dA = scale * B^T dW^T and dB = scale * dW^T A^T.
// dw [i] [in, out_i] of the module's parameters -> da [rank, in], db [out, rank]
void lora_gradients(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& dw, Tensor& da,
                    Tensor& db);

}  // namespace qkv
