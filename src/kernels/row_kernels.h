// SPDX-License-Identifier: Apache-2.0
// The second kernel table: operations of a model and its optimizer on rows and arrays other than matrix products and
// attention. Raw pointers, noexcept, no allocation, no threads (the caller divides rows or elements into ranges);
// compiled for each instruction set from row_body.h and selected as in kernels.h.
//
// Arithmetic is f32 whatever the storage type S (float or bf16; bf16 rounds to nearest even and keeps denormals). All
// instruction sets give the same bits (except NaN payloads): nothing is fused, and sums over a row are 16 interleaved
// sums that are added pairwise at the end. Element i of a result depends on no other element of a range, so an array
// may be divided anywhere; a result may alias an argument of its type only if the pointers are equal.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "qkv/tensor.h"

namespace qkv {

enum class RowNorm : std::uint8_t { rmsnorm, layernorm };
enum class RowActivation : std::uint8_t { relu, relu2, gelu, silu, gelu_erf };

// The settings of core/dropout.h for kernels: an element is dropped if its random number is below threshold.
struct DropoutKey {
  std::uint64_t seed;
  std::uint32_t threshold;
  float scale;
};

// The query and plane indices (core/dropout.h) of the columns of an attention tile. Columns past the requested ones may
// be read and may contain anything.
struct DropoutColumns {
  static constexpr int kMax = 48, kCapacity = kMax + 16;
  std::uint32_t query[kCapacity], plane[kCapacity];
};

// Kernels for the storage type S of the inputs and outputs of matrix products.
template <class S>
struct StoredRowKernels {
  // mean = 0 (rmsnorm) or the mean of x, inverse = 1 / sqrt(mean((x - mean)^2) + eps); y = (x - mean) * inverse * gain
  // + bias. x [rows, d], gain, bias [d] or null -> y [rows, d], statistics [rows, 2]: mean, inverse.
  void (*norm_forward)(RowNorm kind, float eps, std::int64_t rows, std::int64_t d, const float* x, const float* gain,
                       const float* bias, S* y, float* statistics) noexcept;
  // middle = x + delta, then norm_forward of middle. x, delta [rows, d] -> middle [rows, d], y, statistics; middle may
  // alias x or delta.
  void (*residual_norm_forward)(RowNorm kind, float eps, std::int64_t rows, std::int64_t d, const float* x,
                                const float* delta, const float* gain, const float* bias, float* middle, S* y,
                                float* statistics) noexcept;
  //   dxhat = dy * gain, xhat = (x - mean) * inverse
  //   dx (+)= inverse * (dxhat - mean(dxhat) [layernorm only] - xhat * mean(dxhat * xhat))
  // x, dy [rows, d], gain [d] or null, statistics [rows, 2] -> dx [rows, d], added to if `add`; dx may alias dy (f32).
  void (*norm_backward_input)(RowNorm kind, std::int64_t rows, std::int64_t d, const float* x, const float* gain,
                              const float* statistics, const S* dy, bool add, float* dx) noexcept;
  // gain_sums[j] += dy * xhat, bias_sums[j] += dy over rows in order, for columns first ... first + count.
  // x, dy [rows, d], statistics [rows, 2] -> gain_sums, bias_sums [count], each may be null.
  void (*norm_parameter_sums)(std::int64_t rows, std::int64_t d, std::int64_t first, std::int64_t count, const float* x,
                              const float* statistics, const S* dy, float* gain_sums, float* bias_sums) noexcept;
  // sums[j] += x[i * ldx + j] over rows in order, j < count. x [rows, ldx] begins at the first column of the range.
  void (*row_sums)(std::int64_t rows, std::int64_t count, const S* x, std::int64_t ldx, float* sums) noexcept;

  // up [size], gate [size] or null -> a [size]: f(up), or f(gate) * up
  //   relu max(u, 0)   relu2 max(u, 0)^2   gelu u * sigmoid(1.5957691 (u + 0.044715 u^3))   silu u * sigmoid(u)
  //   gelu_erf u/2 (1 + erf(u / sqrt(2)))
  void (*activation_forward)(RowActivation kind, std::int64_t size, const S* gate, const S* up, S* a) noexcept;
  // gate (or null), up, da [size] -> dgate (or null), dup [size]. For relu without a gate, up may be the result a.
  void (*activation_backward)(RowActivation kind, std::int64_t size, const S* gate, const S* up, const S* da, S* dgate,
                              S* dup) noexcept;

  // One row: -ln softmax(logits)[target] in nats, and unless dlogits is null
  //   dlogits = scale * (softmax(logits) - onehot(target)), 0 in the lanes vocab ... padded.
  // target < 0: the loss and dlogits are 0. logits [padded], overwritten if dlogits is given; the lanes from vocab on
  // are never read. dlogits [padded] or null; may alias logits (f32).
  double (*cross_entropy)(std::int64_t vocab, std::int64_t padded, float* logits, std::int64_t target, float scale,
                          S* dlogits) noexcept;

  // RoPE in place on rows of heads: row i is rotated by the angles in row i of cosines, sines [rows, head_dim / 2].
  // `back` rotates by the negative angles (the gradient).
  //   low = low cos - high sin, high = high cos + low sin        pairs (c, c + head_dim / 2) of each head
  // x [rows, ldx]; the first heads * head_dim elements of each row are rotated.
  void (*rotary)(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, const float* cosines, const float* sines,
                 bool back, S* x, std::int64_t ldx) noexcept;

  void (*from_f32)(std::int64_t size, const float* x, S* y) noexcept;     // y = x, rounded
  void (*to_f32)(std::int64_t size, const S* x, float* y) noexcept;       // y = x
  void (*accumulate)(std::int64_t size, const S* x, float* y) noexcept;   // y += x
  void (*add)(std::int64_t size, const S* a, const S* b, S* y) noexcept;  // y = a + b
  // y = x * scale where element first + i of the seed's array is kept, else 0 (whatever x is); forward and backward.
  void (*dropout)(const DropoutKey& key, std::uint64_t first, std::int64_t size, const float* x, S* y) noexcept;
};

// Coefficients of one AdamW step (include/qkv/train.h has the formula):
//   g = gradient_scale * gradient      m = beta1 m + one_minus_beta1 g      v = beta2 v + one_minus_beta2 g^2
//   p = keep p - step_size * (m / (sqrt(v) * inverse_root_bias2 + eps))
struct AdamWFactors {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float keep;                // 1 - lr * weight_decay, or 1
  float step_size;           // lr / (1 - beta1^t)
  float inverse_root_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

struct RowKernels {
  std::string_view name;
  StoredRowKernels<float> f32;
  StoredRowKernels<bf16> half;  // bf16

  // 16 interleaved sums of squares in double, added in order, followed by the remaining elements in order.
  double (*sum_of_squares)(std::int64_t size, const float* x) noexcept;
  // p, m, v, gradient [size] -> p, m, v. None may overlap.
  void (*adamw_update)(std::int64_t size, const AdamWFactors& factors, float* p, float* m, float* v,
                       const float* gradient) noexcept;
  // Attention dropout in a tile s [n keys][width] whose row 0 is key first_key: s * scale where the pair of column and
  // key is kept, else s * 0 (NaN stays NaN), in columns first ... last (at most DropoutColumns::kMax).
  void (*drop_pairs)(const DropoutKey& key, const DropoutColumns& columns, std::uint32_t first_key, int n, int first,
                     int last, int width, float scale, float* s) noexcept;
  // The same in pairs [(n + 1) / 2][width][2] of bf16, but kept elements are unchanged and the others set to 0.
  void (*drop_bf16_pairs)(const DropoutKey& key, const DropoutColumns& columns, std::uint32_t first_key, int n,
                          int first, int last, int width, std::uint16_t* pairs) noexcept;

  template <class S>
  const StoredRowKernels<S>& of() const noexcept {
    if constexpr (std::is_same_v<S, float>)
      return f32;
    else
      return half;
  }
};

// The selected table; selection and exceptions as for kernels(). avx512_bf16 uses the table of avx512: its conversions
// would flush denormals.
const RowKernels& row_kernels();

extern const RowKernels kPortableRowKernels;
#if defined(__x86_64__)
extern const RowKernels kAvx2RowKernels;
extern const RowKernels kAvx512RowKernels;
#endif

}  // namespace qkv
