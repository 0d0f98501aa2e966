// SPDX-License-Identifier: Apache-2.0
// For scripts/check_tokenizers.py: tokenizer_ids TOKENIZER.json ids|text|template reads strings (u32 length, bytes)
// from standard input and writes their ids (u32 count, i32 each). ids: special tokens are recognised; text: they are
// not; template: as ids, plus the tokens that the template adds around a text. With `round-trip` it writes 1 if
// decode(encode(x)) is x, else 0.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "qkv/tokenizer.h"

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: tokenizer_ids TOKENIZER.json ids|text|template|round-trip");
    const qkv::Tokenizer tokenizer = qkv::Tokenizer::load(argv[1]);
    const std::string mode = argv[2];
    const auto special = mode == "text" ? qkv::SpecialTokens::as_text : qkv::SpecialTokens::as_ids;
    std::uint32_t size = 0;
    while (std::fread(&size, sizeof size, 1, stdin) == 1) {
      std::string text(size, '\0');
      if (std::fread(text.data(), 1, size, stdin) != size) throw std::runtime_error("the input ends within a string");
      std::vector<std::int32_t> ids = tokenizer.encode(text, special);
      if (mode == "template") ids = tokenizer.with_template(ids);
      if (mode == "round-trip") ids = {tokenizer.decode(ids) == text};
      const auto count = static_cast<std::uint32_t>(ids.size());
      std::fwrite(&count, sizeof count, 1, stdout);
      std::fwrite(ids.data(), sizeof(std::int32_t), ids.size(), stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
