// SPDX-License-Identifier: Apache-2.0
// Any number of leading axes: arrays [..., n_head, q_len, d] as the four axes that qkv computes with, never a copy.
#pragma once

#include <qkv/tensor.h>

#include <cstdint>
#include <vector>

namespace qkv::python {

// The leading axes of one call. As many of the last ones as have one stride in every array become the batch; the call
// is made once for each place of the others. Arrays of two axes have one head.
class LeadingAxes {
 public:
  // q: [..., n_head, q_len, d_k], of rank 2 to kMaxRank. Throws std::invalid_argument.
  explicit LeadingAxes(const ConstView& q);

  // Takes note of an array with the same leading axes before `own` axes of its own (one fewer for arrays without
  // heads). Throws std::invalid_argument if they differ.
  void add(const char* name, const ConstView& view, int own);
  // The same of an array that broadcasts: axes of size 1, leading ones may lack.
  void add_broadcast(const char* name, const ConstView& view, int own);

  std::int64_t calls() const noexcept { return calls_; }
  std::int64_t batch() const noexcept { return batch_; }  // of one call

  // What call number `call` sees of an array that was added: [batch, own axes ...].
  ConstView at(const ConstView& view, int own, std::int64_t call) const;
  View at(const View& view, int own, std::int64_t call) const;
  // Its part of one number a sequence. Empty and single values stand for all calls.
  std::vector<std::int64_t> at(const char* name, const std::vector<std::int64_t>& values, std::int64_t call) const;

  // The shape of a result: the leading axes, then its own.
  Dims shape(std::initializer_list<std::int64_t> own) const;

 private:
  // Strides and sizes along the leading axes, with size 1 and stride 0 where the array has none.
  struct Along {
    Dims size, stride;
  };
  Along along(const ConstView& view, int own) const;
  void narrow(const Along& along);

  Dims lead_;              // sizes
  bool headless_ = false;  // q has two axes
  int split_ = 0;          // axes from here on are the batch
  std::int64_t calls_ = 1, batch_ = 1;
};

}  // namespace qkv::python
