// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace qkv {
namespace {

// Whether a single character, which may be a byte that is no UTF-8, is one of a class.
bool is(const Pattern& kind, std::string_view character) {
  if (character.empty() || utf8_step(character).kind != Utf8Step::valid) return false;
  return Pattern::Matcher(kind).find(character, 0).begin == 0;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool with_special) : word_(R"(\w)"), space_(R"(\s)") {
  for (const AddedToken& token : tokens)
    if ((with_special || !token.special) && !token.content.empty()) tokens_.push_back(token);
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (const AddedToken& token : tokens_) starts_[static_cast<unsigned char>(token.content[0])] = true;
}

bool AddedTokens::alone(std::string_view text, std::size_t begin, std::size_t end) const {
  return !is(word_, last_character(text.substr(0, begin))) && !is(word_, first_character(text.substr(end)));
}

AddedTokens::Found AddedTokens::find(std::string_view text, std::size_t from) const {
  if (tokens_.empty()) return {text.size(), text.size(), nullptr};
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    for (const AddedToken& token : tokens_) {
      if (!text.substr(at).starts_with(token.content)) continue;
      std::size_t begin = at, end = at + token.content.size();
      if (token.single_word && !alone(text, begin, end)) continue;
      while (token.lstrip && begin > from) {
        const std::string_view character = last_character(text.substr(from, begin - from));
        if (!is(space_, character)) break;
        begin -= character.size();
      }
      while (token.rstrip && end < text.size()) {
        const std::string_view character = first_character(text.substr(end));
        if (!is(space_, character)) break;
        end += character.size();
      }
      return {begin, end, &token};
    }
  }
  return {text.size(), text.size(), nullptr};
}

}  // namespace qkv
