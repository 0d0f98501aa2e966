// SPDX-License-Identifier: Apache-2.0
// The implementation of qkv::Tokenizer, shared with the code that reads and writes its file.
#pragma once

#include <optional>

#include "qkv/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe_encoder.h"
#include "text/harris_encoder.h"
#include "text/scored_encoder.h"
#include "text/splitter.h"
#include "text/tokenizer_data.h"

namespace qkv {

struct Tokenizer::Impl {
  explicit Impl(TokenizerData from);  // throws std::invalid_argument on inconsistent data
  // start: this is the start of the text, not a continuation.
  void encode_scored(std::string_view text, const AddedTokens& added, bool start, std::vector<std::int32_t>& ids) const;

  void encode_characters(std::string_view text, const AddedTokens& added, bool start,
                         std::vector<std::int32_t>& ids) const;

  TokenizerData data;
  std::optional<BpeEncoder> encoder;  // exactly one of the three is set
  std::optional<ScoredEncoder> scored;
  std::optional<HarrisEncoder> harris;
  Splitter splitter;
  AddedTokens plain_added, all_added;  // without and with special tokens
};

}  // namespace qkv
