// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry for GGUF files: any bytes are read to the end or refused.
//   cmake --preset fuzz && cmake --build build/fuzz --target gguf_fuzz gguf_seeds
//   mkdir corpus && build/fuzz/tests/fuzz/gguf_seeds corpus
//   build/fuzz/tests/fuzz/gguf_fuzz -runs=1000000 -max_len=4096 -dict=tests/fuzz/gguf.dict corpus
#include "fuzz/gguf_case.h"
#include "qkv/threads.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  qkv::set_num_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  qkv::test::read_everything(std::as_bytes(std::span(data, size)));
  return 0;
}
