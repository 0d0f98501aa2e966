// SPDX-License-Identifier: Apache-2.0
#include "fuzz/reader_case.h"

#include <stdexcept>
#include <string>

#include "qkv/error.h"

namespace qkv::test {

namespace {

// The message must be one line that begins with the file; messages of libraries never reach users.
void check_message(const FileError& error) {
  const std::string what = error.what();
  const auto wrong = [&](const std::string& fault) { throw std::logic_error("a message " + fault + ": " + what); };
  if (error.path().empty() || !what.starts_with(error.path() + ": ")) wrong("that does not begin with the file");
  if (what.size() < error.path().size() + 8) wrong("without a reason");
  if (what.find('\n') != std::string::npos) wrong("of several lines");
  for (const char* words : {"json.exception", "parse_error", "type_error", "std::", "basic_string", "vector::", "stoll",
                            "stod", "bad_alloc", "filesystem error", "unordered_map", "pcre2_", "c10::"})
    if (what.find(words) != std::string::npos) wrong(std::string("with a library's words, ") + words);
}

}  // namespace

bool read_bytes(std::string_view reader, std::string_view bytes) {
  const auto found = readers().find(reader);
  if (found == readers().end()) throw std::runtime_error(std::string(reader) + ": there is no such reader");
  try {
    found->second.read(bytes);
    return true;
  } catch (const FileError& error) {
    check_message(error);
    return false;
  }
}

}  // namespace qkv::test
