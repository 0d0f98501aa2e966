// SPDX-License-Identifier: Apache-2.0
// The parameters of a model file, refused by name where one is NaN or infinite.
#pragma once

#include "formats/model_source.h"

namespace qkv {

class FiniteParameters final : public StoredParameters {
 public:
  explicit FiniteParameters(const ModelSource& source) : source_(source) {}  // which must outlive it

  DType stored_type(std::size_t i) const override { return source_.stored_type(i); }
  // Throw qkv::FileError also for the first element that is not finite.
  void read(std::size_t i, View to) const override;
  void read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const override;

 private:
  const ModelSource& source_;
};

// Throws qkv::FileError unless all elements of a contiguous array are finite. what: "parameter", "first moment of"
void require_finite(const ModelSource& source, const char* what, std::size_t i, const ConstView& values);

}  // namespace qkv
