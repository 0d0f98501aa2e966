// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace qkv {
namespace {

// Whether a single character, possibly a byte that is not UTF-8, belongs to a class.
bool is(const Pattern& kind, std::string_view character) {
  if (character.empty() || utf8_step(character).kind != Utf8Step::valid) return false;
  return Pattern::Matcher(kind).find(character, 0).begin == 0;
}

}  // namespace

// \w and \s as in the regular expressions of `tokenizers`.
AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool with_special)
    : with_special_(with_special),
      word_(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])"),
      space_(R"(\p{White_Space})") {
  for (const AddedToken& token : tokens)
    if (!token.content.empty()) (token.normalized ? normalized_ : plain_).tokens.push_back(token);
  for (Kind* kind : {&plain_, &normalized_}) {
    std::stable_sort(kind->tokens.begin(), kind->tokens.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
    for (const AddedToken& token : kind->tokens) kind->starts[static_cast<unsigned char>(token.content[0])] = true;
  }
}

bool AddedTokens::counts(const AddedToken& token, std::string_view text, std::size_t begin, std::size_t end) const {
  if (token.special && !with_special_) return false;
  if (!token.single_word) return true;
  return !is(word_, last_character(text.substr(0, begin))) && !is(word_, first_character(text.substr(end)));
}

void AddedTokens::split(std::string_view text, const Take& take, const Normalise& normalise) const {
  split(plain_, text, [&](std::string_view part, const AddedToken* token) {
    if (token) return take(part, token);
    if (!normalise) return split(normalized_, part, take);
    const std::string normalised = normalise(part);
    split(normalized_, normalised, take);
  });
}

void AddedTokens::split(const Kind& kind, std::string_view text, const Take& take) const {
  if (kind.tokens.empty() && !text.empty()) return take(text, nullptr);
  std::size_t taken = 0;  // start of the remaining text
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = nullptr;
    if (kind.starts[static_cast<unsigned char>(text[at])])
      for (const AddedToken& candidate : kind.tokens)
        if (text.substr(at).starts_with(candidate.content)) {
          token = &candidate;
          break;
        }
    if (!token) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;
    if (!counts(*token, text, begin, end)) continue;
    while (token->lstrip && begin > taken) {
      const std::string_view character = last_character(text.substr(taken, begin - taken));
      if (!is(space_, character)) break;
      begin -= character.size();
    }
    while (token->rstrip && end < text.size()) {
      const std::string_view character = first_character(text.substr(end));
      if (!is(space_, character)) break;
      end += character.size();
    }
    if (taken < begin) take(text.substr(taken, begin - taken), nullptr);
    take(text.substr(begin, end - begin), token);
    taken = end;
  }
  if (taken < text.size()) take(text.substr(taken), nullptr);
}

}  // namespace qkv
