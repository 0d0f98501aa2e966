// SPDX-License-Identifier: Apache-2.0
#include "shown_text.h"

#include "cli.h"

namespace qkv::cli {

void print_written(std::string_view text) {
  if (!output_is_terminal()) return print(text);
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    const bool c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // U+0080 to U+009F
    if (c1) ++i;
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (control || c1) {
      shown += "\xEF\xBF\xBD";
    } else {
      shown += text[i];
    }
  }
  print(shown);
}

}  // namespace qkv::cli
