// SPDX-License-Identifier: Apache-2.0
// Memory that will be needed soon, asked for a few lines at a time between the kernels: all at once would keep the
// processor waiting for memory, which is what asking ahead is to avoid.
#pragma once

#include <cstdint>

namespace qkv {

struct AttentionProblem;
struct AttentionResults;
struct QueryTile;
class PackedValues;

class ReadAhead {
 public:
  void clear() noexcept { count_ = part_ = 0, row_ = byte_ = 0; }
  // Rows of `bytes` each, `stride` bytes apart. At most four times after clear().
  void add(const void* first, std::int64_t rows, std::int64_t stride, std::int64_t bytes) noexcept;
  // The next lines of memory, if any are left.
  void step() noexcept;

 private:
  struct Part {
    const char* first;
    std::int64_t rows, stride, bytes;
  };
  Part parts_[4];
  int count_ = 0, part_ = 0;
  std::int64_t row_ = 0, byte_ = 0;
};

// What this tile will write, and what the tile that this thread will most likely take next reads first: its queries,
// and the keys and values at the beginning of its window. packed: null where values are read as they are.
void look_ahead(const AttentionProblem& p, const AttentionResults& results, const QueryTile& tile,
                const PackedValues* packed, ReadAhead& ahead) noexcept;

}  // namespace qkv
