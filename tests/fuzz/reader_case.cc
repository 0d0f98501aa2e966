// SPDX-License-Identifier: Apache-2.0
#include "fuzz/reader_case.h"

#include <stdexcept>

#include "qkv/error.h"

namespace qkv::test {

bool read_bytes(std::string_view reader, std::string_view bytes) {
  const auto found = readers().find(reader);
  if (found == readers().end()) throw std::runtime_error(std::string(reader) + ": there is no such reader");
  try {
    found->second.read(bytes);
    return true;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace qkv::test
