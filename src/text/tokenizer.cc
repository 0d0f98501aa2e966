// SPDX-License-Identifier: Apache-2.0
#include "qkv/tokenizer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "text/bpe_trainer.h"
#include "text/harris_trainer.h"
#include "text/normalise.h"
#include "text/piece_cache.h"
#include "text/tokenizer_impl.h"

namespace qkv {
namespace {

// Number of cache sets for a text: caching does not pay for short ones.
std::size_t sets_for(std::size_t bytes) { return std::min(kPieceSets, bytes / 64); }

// Added tokens in the form in which they are matched.
std::vector<AddedToken> as_found(const TokenizerData& data) {
  std::vector<AddedToken> tokens = data.added;
  for (AddedToken& token : tokens)
    if (token.normalized) token.content = normalise(token.content, data.normalisers);
  return tokens;
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerData from)
    : data(std::move(from)),
      splitter(data.patterns),
      plain_added(as_found(data), false),
      all_added(as_found(data), true) {
  for (const std::vector<std::int32_t>* ids : {&data.before, &data.after})
    for (const std::int32_t id : *ids)
      if (id < 0 || static_cast<std::size_t>(id) >= data.tokens.size())
        throw std::invalid_argument("[tokenizer] expected token ids before and after a text; found " +
                                    std::to_string(id));
  if (data.longest_match)
    harris.emplace(data);
  else if (data.scores.empty())
    encoder.emplace(data);
  else
    scored.emplace(data);
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

Tokenizer Tokenizer::train_harris(std::string_view text, std::int64_t size) {
  return from_data(train_harris_data(text, size));
}

Tokenizer Tokenizer::from_data(TokenizerData data) { return Tokenizer(std::make_shared<const Impl>(std::move(data))); }
const TokenizerData& Tokenizer::data() const noexcept { return impl_->data; }

std::int64_t Tokenizer::size() const noexcept { return static_cast<std::int64_t>(impl_->data.tokens.size()); }
std::int32_t Tokenizer::begin_token() const noexcept { return impl_->data.begin_token; }
std::int32_t Tokenizer::end_token() const noexcept { return impl_->data.end_token; }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  TextEncoder(*this, sets_for(text.size())).encode(text, ids, special);
  return ids;
}

std::vector<std::int32_t> Tokenizer::with_template(const std::vector<std::int32_t>& ids) const {
  const TokenizerData& data = impl_->data;
  std::vector<std::int32_t> result = data.before;
  if (data.before.empty() && data.after.empty() && data.begin_token >= 0) result.push_back(data.begin_token);
  result.insert(result.end(), ids.begin(), ids.end());
  result.insert(result.end(), data.after.begin(), data.after.end());
  return result;
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
  // Removes the space that encode() prepended; the first token may be a control token.
  const bool prefixed = (impl_->scored || impl_->data.characters) && impl_->data.add_prefix_space;
  if (prefixed && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace qkv
