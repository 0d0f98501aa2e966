// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of one of the formats, read to the end or refused with qkv::FileError.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::test {

struct Reader {
  void (*read)(std::string_view bytes);  // the file, and all that can be read from it
  std::vector<std::string> (*seeds)();   // valid files, small, of all kinds
};

// By name. format_readers.cc has the files that models are made of, run_readers.cc those that runs leave behind; a
// program is linked with one of the two.
const std::map<std::string, Reader, std::less<>>& readers();

// Whether the bytes were accepted. What is thrown is not a qkv::FileError and so a fault.
bool read_bytes(std::string_view reader, std::string_view bytes);

}  // namespace qkv::test
