// SPDX-License-Identifier: Apache-2.0
#include "formats/finite_parameters.h"

#include <cstring>
#include <string>

#include "core/finite.h"
#include "core/float_types.h"
#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// ggml's blocks of 32 begin with their scale, and those of q4_1 then have a minimum; all else is integers.
bool finite_block(DType type, const std::byte* block) noexcept {
  const int numbers = type == DType::q4_1 ? 2 : 1;
  for (int i = 0; i < numbers; ++i) {
    f16 number;
    std::memcpy(&number, block + 2 * i, sizeof number);
    if ((number.bits & 0x7c00u) == 0x7c00u) return false;
  }
  return true;
}

}  // namespace

void require_finite(const ModelSource& source, const char* what, std::size_t i, const ConstView& values) {
  const std::int64_t bad = first_non_finite(values);
  if (bad >= 0)
    throw FileError(source.path(), std::string(what) + " " + in_quotes(source.infos()[i].name) + ": element " +
                                       std::to_string(bad) + " is not finite");
}

void FiniteParameters::read(std::size_t i, View to) const {
  source_.read(i, to);
  require_finite(source_, "parameter", i, to);
}

void FiniteParameters::read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const {
  source_.read_blocks(i, first, count, to);
  const DType type = source_.stored_type(i);
  const ParameterInfo& info = source_.infos()[i];
  const std::int64_t in = info.role == ParameterRole::token_embedding ? info.shape[1] : info.shape[0];
  const std::int64_t blocks = count * (in / block_size(type).elements);
  for (std::int64_t b = 0; b < blocks; ++b)
    if (!finite_block(type, to + b * block_size(type).bytes))
      throw FileError(source_.path(), "parameter " + in_quotes(info.name) + ": column " +
                                          std::to_string(first + b * block_size(type).elements / in) +
                                          " is not finite");
}

}  // namespace qkv
