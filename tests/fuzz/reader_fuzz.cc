// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry for one file reader, QKV_READER; see scripts/fuzz_readers.sh.
#include <cstddef>
#include <cstdint>

#include "fuzz/reader_case.h"
#include "qkv/threads.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  qkv::set_num_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  qkv::test::read_bytes(QKV_READER, {reinterpret_cast<const char*>(data), size});
  return 0;
}
