// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry: any bytes form an attention problem, whose results must match the equations.
//   cmake --preset fuzz && cmake --build --preset fuzz
//   build/fuzz/tests/fuzz/attention_fuzz -entropic=0 -runs=1000000
#include <cstdio>
#include <cstdlib>

#include "fuzz/attention_case.h"
#include "qkv/threads.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  qkv::set_num_threads(1);  // the problems are tiny; threads are tested elsewhere
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string found = qkv::test::differences(qkv::test::make_attention_case(data, size));
  if (!found.empty()) {
    std::fprintf(stderr, "%s", found.c_str());
    std::abort();
  }
  return 0;
}
