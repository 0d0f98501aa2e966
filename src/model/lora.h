// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters (qkv/lora.h): W = W0 + scale * A^T B^T, and the gradients of A and B from dW.
#pragma once

#include <vector>

#include "qkv/lora.h"

namespace qkv {

// to = base + scale * A^T B^T for the adapted matrices. base[i] and to[i] belong to parameters[i], the module's i-th.
// All must have the same dtype and matching shapes.
void merge_lora(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& base,
                const std::vector<Tensor*>& to);

// With dW^T = dy x^T of the whole matrix: dA = scale * B^T dW^T, dB = scale * dW^T A^T.
// dw[i] [in, out_i] of the module's parameters -> da [rank, in], db [out, rank]
void lora_gradients(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& dw, Tensor& da,
                    Tensor& db);

}  // namespace qkv
