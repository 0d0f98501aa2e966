// SPDX-License-Identifier: Apache-2.0
// Token ids from Python.
#include <algorithm>
#include <limits>
#include <string>

#include "array.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
TokenRows token_rows(const char* name, nb::handle object) {
  const Borrowed array(name, object);
  const ConstView& view = array.view();
  if (view.rank() != 1 && view.rank() != 2)
    throw std::invalid_argument(std::string("[model] ") + name + " must be [ctx] or [batch, ctx]; found shape " +
                                to_string(view.shape));
  TokenRows rows;
  rows.one = view.rank() == 1;
  rows.batch = rows.one ? 1 : view.shape[0];
  rows.ctx = view.shape[view.rank() - 1];
  for (const std::int64_t id : integers(name, object)) {
    if (id < std::numeric_limits<std::int32_t>::min() || id > std::numeric_limits<std::int32_t>::max())
      throw std::invalid_argument(std::string("[model] ") + name + " must be 32-bit token ids; found " +
                                  std::to_string(id));
    rows.tokens.push_back(static_cast<std::int32_t>(id));
  }
  return rows;
}

BatchRows::BatchRows(nb::handle tokens_given, nb::handle targets_given, nb::handle lengths_given)
    : tokens(token_rows("tokens", tokens_given)), lengths(integers("lengths", lengths_given)) {
  if (!targets_given.is_none()) {
    TokenRows wanted = token_rows("targets", targets_given);
    if (wanted.batch != tokens.batch || wanted.ctx != tokens.ctx)
      throw std::invalid_argument("[model] targets must have the shape of tokens; found a different shape");
    targets = std::move(wanted.tokens);
    return;
  }
  targets.assign(tokens.tokens.size(), -1);
  for (std::int64_t b = 0; b < tokens.batch; ++b) {
    const auto i = static_cast<std::size_t>(b);
    const std::int64_t length = i < lengths.size() ? std::clamp<std::int64_t>(lengths[i], 0, tokens.ctx) : tokens.ctx;
    const auto row = tokens.tokens.begin() + b * tokens.ctx;
    if (length > 1) std::copy(row + 1, row + length, targets.begin() + b * tokens.ctx);
  }
}

const Tokenizer& require_tokenizer(const ModelCore& core) {
  if (!core.tokenizer) throw std::invalid_argument("[model] expected a model with a tokenizer; found one without");
  return *core.tokenizer;
}

std::vector<std::int32_t> prompt_tokens(const ModelCore& core, nb::handle prompt) {
  const std::optional<std::string> text = text_bytes(prompt);
  if (!text) return token_rows("prompt", prompt).tokens;
  const Tokenizer& tokenizer = require_tokenizer(core);
  std::vector<std::int32_t> tokens = tokenizer.encode(*text);
  if (tokenizer.begin_token() >= 0) tokens.insert(tokens.begin(), tokenizer.begin_token());
  if (tokens.empty() && tokenizer.end_token() >= 0)
    tokens.push_back(tokenizer.end_token());  // an empty prompt starts a new text
  return tokens;
}

}  // namespace qkv::python
