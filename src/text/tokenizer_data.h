// SPDX-License-Identifier: Apache-2.0
// All that makes a tokenizer what it is, as plain data: what tokenizer.json holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

inline constexpr std::string_view kEndToken = "<|endoftext|>";

// A token that is found in the text before anything is split, rather than built from pairs.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // a control token: found only where the caller asks for it
  bool single_word = false;  // only where no letter, digit or '_' adjoins
  bool lstrip = false;       // takes the spaces before it along
  bool rstrip = false;       // and those after it
  bool normalized = false;   // found in the normalised text, after all that are not
  bool in_model = false;     // a token of the model as well: pairs may become it, and ignore_merges finds it
};

struct Merge {
  std::int32_t left, right, result;
};

enum class Normaliser : std::uint8_t { nfc, nfd, nfkc, nfkd };  // Unicode's normalization forms

// Where TokenizerData::add_prefix_space puts a space, of a text cut at its added tokens: before each part, before each
// that does not begin with one, or before the first alone if it does not.
enum class SpacePrefix : std::uint8_t { each_part, unless_there, first_unless_there };

struct TokenizerData {
  std::vector<std::string> tokens;      // [size] the bytes of each id
  std::vector<Merge> merges;            // the most urgent first
  std::vector<AddedToken> added;        // their ids are in `tokens` too
  std::vector<Normaliser> normalisers;  // what is done to the text first, in this order
  std::vector<std::string> patterns;    // of the splitter, stage by stage
  bool add_prefix_space = false;        // a text that does not begin with a space is given one
  bool ignore_merges = false;           // a piece that is a token is that token, whatever the merges say
  bool drop_unknown_bytes = false;      // a byte without a token is left out of texts; else each must have one, or
                                        // unknown_token stands for it
  bool fuse_unknown = false;            // one unknown_token for a run of such bytes
  std::int32_t end_token = -1;
  std::int32_t begin_token = -1;  // what a model expects before a text, if anything
  // What with_template() puts before and after a text; begin_token is all there is where both are empty.
  std::vector<std::int32_t> before, after;

  // Longest match first among all tokens that are no added ones, instead of pairs (src/text/harris_encoder.h).
  bool longest_match = false;

  // Pairs begin as characters and not as bytes, as sentencepiece's BPE models stand in tokenizer.json: U+2581 is a
  // space, byte_ids stand for the bytes of a character without a token, and merges go across the whole text, or
  // (split_spaces) within what begins at each space.
  bool characters = false;
  bool split_spaces = false;
  SpacePrefix space_prefix = SpacePrefix::each_part;

  // Not empty: pieces are joined by score and not by merges, as sentencepiece does, and add_prefix_space puts one
  // before every text and after every special token. U+2581 is a space there.
  std::vector<float> scores;           // [size]
  std::vector<std::int32_t> byte_ids;  // [256]: what stands for a byte of a character without a token; -1: nothing does
  std::int32_t unknown_token = -1;     // stands for such a byte then
};

}  // namespace qkv
