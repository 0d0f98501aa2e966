// SPDX-License-Identifier: Apache-2.0
// `reader_corpus seeds READER FOLDER` writes valid files; `reader_corpus replay READER FOLDER` reads every file there.
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "fuzz/reader_case.h"

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: reader_corpus seeds|replay READER FOLDER");
    int count = 0, accepted = 0;
    if (std::strcmp(argv[1], "seeds") == 0) {
      for (const std::string& bytes : qkv::test::readers().at(argv[2]).seeds())
        std::ofstream(std::string(argv[3]) + "/seed" + std::to_string(count++), std::ios::binary) << bytes;
    } else {
      for (const auto& entry : std::filesystem::directory_iterator(argv[3])) {
        std::ifstream in(entry.path(), std::ios::binary);
        accepted += qkv::test::read_bytes(argv[2], std::string(std::istreambuf_iterator<char>(in), {}));
        ++count;
      }
    }
    std::printf("%s: %d files, %d accepted\n", argv[2], count, accepted);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
