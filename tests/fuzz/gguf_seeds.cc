// SPDX-License-Identifier: Apache-2.0
// gguf_seeds DIRECTORY: writes the valid files that fuzzing begins with.
#include <cstdio>
#include <fstream>

#include "fuzz/gguf_case.h"

int main(int count, char** values) {
  if (count != 2) {
    std::fprintf(stderr, "usage: gguf_seeds DIRECTORY\n");
    return 2;
  }
  for (const auto& [name, bytes] : qkv::test::gguf_seeds()) {
    std::ofstream out(std::string(values[1]) + "/" + name + ".gguf", std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) return 1;
  }
  return 0;
}
