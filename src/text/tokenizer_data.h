// SPDX-License-Identifier: Apache-2.0
// The complete definition of a tokenizer as plain data: the contents of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

inline constexpr std::string_view kEndToken = "<|endoftext|>";

// A token that is matched in the text before splitting, rather than built by merges.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // a control token: matched only on request
  bool single_word = false;  // only if not adjacent to a letter, digit or '_'
  bool lstrip = false;       // includes the spaces before it
  bool rstrip = false;       // includes the spaces after it
  bool normalized = false;   // matched in the normalised text, after all others
  bool in_model = false;     // also a token of the model: merges may produce it, and ignore_merges matches it
};

struct Merge {
  std::int32_t left, right, result;
};

enum class Normaliser : std::uint8_t { nfc, nfd, nfkc, nfkd };  // Unicode normalization forms

// Where TokenizerData::add_prefix_space puts a space in a text split at its added tokens: before each part, before each
// part that does not start with one, or only before the first if it does not start with one.
enum class SpacePrefix : std::uint8_t { each_part, unless_there, first_unless_there };

struct TokenizerData {
  std::vector<std::string> tokens;      // [size] the bytes of each id
  std::vector<Merge> merges;            // by rank
  std::vector<AddedToken> added;        // their ids are in `tokens` too
  std::vector<Normaliser> normalisers;  // applied to the text first, in this order
  std::vector<std::string> patterns;    // of the splitter, by stage
  bool add_prefix_space = false;        // prepends a space to a text that does not start with one
  bool ignore_merges = false;           // a piece that is a token becomes that token, regardless of merges
  bool drop_unknown_bytes = false;      // drops bytes without a token; else each has one or becomes unknown_token
  bool fuse_unknown = false;            // one unknown_token for a run of such bytes
  std::int32_t end_token = -1;
  std::int32_t begin_token = -1;  // expected by a model before a text; -1: none
  // Ids that with_template() puts before and after a text; if both are empty, only begin_token.
  std::vector<std::int32_t> before, after;

  // Longest match among all tokens except added ones, instead of merges (src/text/harris_encoder.h).
  bool longest_match = false;

  // Merges start from characters instead of bytes, as in the tokenizer.json of sentencepiece's BPE models: U+2581
  // represents a space, byte_ids encode the bytes of a character without a token, and merges cross the whole text or
  // (split_spaces) only the parts starting at each space.
  bool characters = false;
  bool split_spaces = false;
  SpacePrefix space_prefix = SpacePrefix::each_part;

  // Not empty: pieces are joined by score instead of merges, as in sentencepiece, and add_prefix_space prepends a space
  // to every text and after every special token. U+2581 represents a space.
  std::vector<float> scores;           // [size]
  std::vector<std::int32_t> byte_ids;  // [256]: id for a byte of a character without a token; -1: none
  std::int32_t unknown_token = -1;     // used for a byte without an id
};

}  // namespace qkv
