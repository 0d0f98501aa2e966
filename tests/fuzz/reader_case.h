// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of one of the formats: read to the end or refused with qkv::FileError.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::test {

struct Reader {
  void (*read)(std::string_view bytes);  // reads the file and everything in it
  std::vector<std::string> (*seeds)();   // small valid files of all kinds
};

// Readers by name: model files are in format_readers.cc, files of training and generation runs in run_readers.cc; a
// program links one of the two.
const std::map<std::string, Reader, std::less<>>& readers();

// Whether the bytes were accepted. Any exception thrown is not a qkv::FileError and therefore a bug.
bool read_bytes(std::string_view reader, std::string_view bytes);

}  // namespace qkv::test
