// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <utility>

#include "text/normalise.h"
#include "text/piece_cache.h"
#include "text/tokenizer_impl.h"

namespace qkv {

// A space is prepended to the text and after each special token.
void Tokenizer::Impl::encode_scored(std::string_view text, const AddedTokens& added, bool start,
                                    std::vector<std::int32_t>& ids) const {
  added.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token) {
      ids.push_back(token->id);
    } else {
      const std::string spaced = with_spaces(part);
      scored->encode(data.add_prefix_space && start ? ' ' + spaced : spaced, ids);
    }
    start = token != nullptr;
  });
}

// A space is prepended according to the data; U+2581 represents a space.
void Tokenizer::Impl::encode_characters(std::string_view text, const AddedTokens& added, bool start,
                                        std::vector<std::int32_t>& ids) const {
  bool first = true;
  added.split(text, [&](std::string_view part, const AddedToken* token) {
    const bool begins = std::exchange(first, false) ? start : data.space_prefix != SpacePrefix::first_unless_there;
    if (token) return ids.push_back(token->id);
    std::string spaced = with_spaces(part);
    const bool has_one = data.space_prefix != SpacePrefix::each_part && spaced.starts_with(' ');
    if (data.add_prefix_space && begins && !has_one) spaced.insert(0, 1, ' ');
    for (std::size_t at = 0; at < spaced.size();) {
      const std::size_t end = data.split_spaces ? std::min(spaced.find(' ', at + 1), spaced.size()) : spaced.size();
      encoder->encode(std::string_view(spaced).substr(at, end - at), ids);
      at = end;
    }
  });
}

struct TextEncoder::State {
  State(std::shared_ptr<const Tokenizer::Impl> from, std::size_t sets) : impl(std::move(from)), cache(sets) {}

  // `end`: end of the readable bytes.
  void add(std::string_view piece, const char* end, std::vector<std::int32_t>& ids) {
    if (piece.size() > PieceCache::kLongestPiece || cache.empty()) return impl->encoder->encode(piece, ids);
    const PieceCache::Key key = PieceCache::key_of(piece, static_cast<std::size_t>(end - piece.data()));
    const auto known = cache.find(key);
    if (!known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = ids.size();
    impl->encoder->encode(piece, ids);
    if (ids.size() - before <= PieceCache::kMaxIds) cache.put(key, std::span(ids).subspan(before));
  }

  // Encodes a text without added tokens.
  void add_text(std::string_view text, std::vector<std::int32_t>& ids) {
    if (!impl->encoder->merges()) {
      for (const char byte : text) ids.push_back(impl->encoder->byte_id(byte));
      return;
    }
    const char* const end = text.data() + text.size();
    impl->splitter.split(text, [&](std::string_view piece) { add(piece, end, ids); });
  }

  std::shared_ptr<const Tokenizer::Impl> impl;
  PieceCache cache;
};

TextEncoder::TextEncoder(const Tokenizer& tokenizer) : TextEncoder(tokenizer, kPieceSets) {}
TextEncoder::TextEncoder(const Tokenizer& tokenizer, std::size_t sets)
    : state_(std::make_unique<State>(tokenizer.impl_, sets)) {}
TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;
TextEncoder& TextEncoder::operator=(TextEncoder&&) noexcept = default;

void TextEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids, SpecialTokens special, bool continues) {
  const Tokenizer::Impl& impl = *state_->impl;
  const AddedTokens& added = special == SpecialTokens::as_ids ? impl.all_added : impl.plain_added;
  if (impl.scored) return impl.encode_scored(text, added, !continues, ids);
  if (impl.data.characters) return impl.encode_characters(text, added, !continues, ids);
  AddedTokens::Normalise normalised;
  if (!impl.data.normalisers.empty())
    normalised = [&impl](std::string_view part) { return normalise(part, impl.data.normalisers); };
  bool within = continues;  // its space has been prepended already
  added.split(
      text,
      [&](std::string_view part, const AddedToken* token) {
        if (token)
          ids.push_back(token->id);
        else if (impl.harris)
          impl.harris->encode(part, ids);
        else if (impl.data.add_prefix_space && !within && part.front() != ' ')
          state_->add_text(' ' + std::string(part), ids);
        else
          state_->add_text(part, ids);
        within = false;
      },
      normalised);
}

}  // namespace qkv
