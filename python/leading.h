// SPDX-License-Identifier: Apache-2.0
// Any number of leading axes: maps arrays [..., n_head, q_len, d] to the four axes of the C++ API, without a copy.
#pragma once

#include <qkv/tensor.h>

#include <cstdint>
#include <vector>

namespace qkv::python {

// The leading axes of one call. As many trailing ones as can be merged into one stride in every array become the batch;
// the C++ function is called once per index of the others. Arrays of two axes have one head.
class LeadingAxes {
 public:
  // q: [..., n_head, q_len, d_k], of rank 2 to kMaxRank. Throws std::invalid_argument.
  explicit LeadingAxes(const ConstView& q);

  // Adds an array with the same leading axes followed by `own` axes of its own (one fewer for arrays without heads).
  // Throws std::invalid_argument if the leading axes differ.
  void add(const char* name, const ConstView& view, int own);
  // The same for an array that broadcasts: axes of size 1, leading ones optional.
  void add_broadcast(const char* name, const ConstView& view, int own);

  std::int64_t calls() const noexcept { return calls_; }
  std::int64_t batch() const noexcept { return batch_; }  // of one call

  // The part of an added array for call number `call`: [batch, own axes ...].
  ConstView at(const ConstView& view, int own, std::int64_t call) const;
  View at(const View& view, int own, std::int64_t call) const;
  // The part of per-sequence numbers for a call. Empty and single values apply to all calls.
  std::vector<std::int64_t> at(const char* name, const std::vector<std::int64_t>& values, std::int64_t call) const;

  // Shape of a result: the leading axes, then its own.
  Dims shape(std::initializer_list<std::int64_t> own) const;

 private:
  // Sizes and strides along the leading axes; size 1 and stride 0 where the array has no such axis.
  struct Along {
    Dims size, stride;
  };
  Along along(const ConstView& view, int own) const;
  void narrow(const Along& along);

  Dims lead_;              // sizes
  bool headless_ = false;  // q has two axes
  int split_ = 0;          // axes from this one on are the batch
  std::int64_t calls_ = 1, batch_ = 1;
};

}  // namespace qkv::python
