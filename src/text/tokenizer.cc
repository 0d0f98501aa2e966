// SPDX-License-Identifier: Apache-2.0
#include "qkv/tokenizer.h"

#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "text/bpe_trainer.h"
#include "text/tokenizer_impl.h"

namespace qkv {
namespace {

// Appends pieces' ids to a list and remembers where the ids of each piece are, so that a piece is encoded once.
class PieceEncoder {
 public:
  PieceEncoder(const BpeEncoder& encoder, std::vector<std::int32_t>& ids) : encoder_(encoder), ids_(ids) {}

  // The piece's bytes must stay where they are for as long as this object lives.
  void add(std::string_view piece) {
    const auto [found, is_new] = known_.try_emplace(piece, ids_.size(), std::size_t{0});
    if (is_new) {
      encoder_.encode(piece, ids_);
      found->second.second = ids_.size();
      return;
    }
    for (std::size_t i = found->second.first; i < found->second.second; ++i) {
      const std::int32_t id = ids_[i];
      ids_.push_back(id);
    }
  }

 private:
  const BpeEncoder& encoder_;
  std::vector<std::int32_t>& ids_;
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known_;
};

}  // namespace

Tokenizer::Impl::Impl(TokenizerData from)
    : data(std::move(from)), splitter(data.patterns), plain_added(data.added, false), all_added(data.added, true) {
  if (data.scores.empty())
    encoder.emplace(data);
  else
    scored.emplace(data);
}

// A space is put before the text and after each special token.
std::vector<std::int32_t> Tokenizer::Impl::encode_scored(std::string_view text, const AddedTokens& added) const {
  std::vector<std::int32_t> ids;
  bool start = true;
  for (std::size_t at = 0; at < text.size();) {
    const AddedTokens::Found found = added.find(text, at);
    if (found.begin > at) {
      const std::string part = with_spaces(text.substr(at, found.begin - at));
      scored->encode(data.add_prefix_space && start ? ' ' + part : part, ids);
      start = false;
    }
    if (found.token) {
      ids.push_back(found.token->id);
      start = true;
    }
    at = found.end;
  }
  return ids;
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(const Tokenizer&) = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer other) noexcept {
  impl_.swap(other.impl_);
  return *this;
}

Tokenizer Tokenizer::bytes() { return Tokenizer(std::make_shared<const Impl>(byte_tokenizer_data())); }

Tokenizer Tokenizer::train_bpe(std::string_view text, std::int64_t size, Progress progress) {
  std::function<void(std::int64_t, std::int64_t)> report;
  if (progress.report)
    report = [progress](std::int64_t done, std::int64_t total) { progress.report(progress.self, done, total); };
  return Tokenizer(std::make_shared<const Impl>(train_bpe_data(text, size, report)));
}

std::int64_t Tokenizer::size() const noexcept { return static_cast<std::int64_t>(impl_->data.tokens.size()); }
std::int32_t Tokenizer::begin_token() const noexcept { return impl_->data.begin_token; }
std::int32_t Tokenizer::end_token() const noexcept { return impl_->data.end_token; }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  const AddedTokens& added = special == SpecialTokens::as_ids ? impl_->all_added : impl_->plain_added;
  if (impl_->scored) return impl_->encode_scored(text, added);
  const BpeEncoder& encoder = *impl_->encoder;
  const bool bytes_only = !encoder.merges();
  if (bytes_only) ids.reserve(text.size());
  std::string prefixed;  // the text between two added tokens with a space before it
  std::size_t at = 0;
  PieceEncoder pieces(encoder, ids);
  while (at < text.size()) {
    const AddedTokens::Found found = added.find(text, at);
    std::string_view part = text.substr(at, found.begin - at);
    const bool prefix = impl_->data.add_prefix_space && !part.empty() && part.front() != ' ';
    if (prefix) part = prefixed = ' ' + std::string(part);
    if (bytes_only) {
      for (const char byte : part) ids.push_back(encoder.byte_id(byte));
    } else if (prefix) {  // these bytes do not stay
      PieceEncoder passing(encoder, ids);
      impl_->splitter.split(part, [&](std::string_view piece) { passing.add(piece); });
    } else {
      impl_->splitter.split(part, [&](std::string_view piece) { pieces.add(piece); });
    }
    if (found.token) ids.push_back(found.token->id);
    at = found.end;
  }
  return ids;
}

std::string Tokenizer::decode(std::int32_t id) const {
  if (id < 0 || id >= size())
    throw std::invalid_argument("[decode] expected an id from 0 to " + std::to_string(size() - 1) + "; found " +
                                std::to_string(id));
  return impl_->data.tokens[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += decode(id);
  // The space that encode() put there; the first token may be a control token.
  const bool prefixed = impl_->scored && impl_->data.add_prefix_space;
  if (prefixed && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace qkv
