// SPDX-License-Identifier: Apache-2.0
// Letting a model go on from a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "qkv/model.h"
#include "qkv/sampler.h"

namespace qkv {

enum class StopReason : std::uint8_t {
  max_tokens,    // as many tokens as were asked for
  end_token,     // the model drew an end token
  context_full,  // prompt and new tokens fill ctx_len
  callback,      // on_token returned false
};

struct GenerateOptions {
  SamplerOptions sampler;
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> end_tokens = {};  // each ends the text
  std::int64_t vocab_limit = 0;               // only ids below it are drawn (a padded vocabulary); 0: all
  // Past the end of the context: once ctx_len tokens are read and one more is to be, the first `keep` tokens of the
  // text and the latest (ctx_len - keep) / 2 stay, the latest are read again at the positions that they have now, and
  // the text goes on. What follows is exactly what the model says to those tokens alone, whichever kind of positions it
  // has. A prompt longer than the context is cut in the same way.
  bool shift = false;
  std::int64_t keep = 4;                               // 0 ... ctx_len - 2; -1: the whole prompt
  std::optional<CacheType> cache_type = std::nullopt;  // of keys and values; nothing: the type of the operands
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the new ones, without the end token
  StopReason reason = StopReason::max_tokens;
  std::int64_t prompt_read = 0;  // tokens of the prompt that had to be read
  std::int64_t shifts = 0;       // how often the text was cut to go on
  double prompt_seconds = 0;     // reading the prompt
  double generate_seconds = 0;   // all after it
};

// A text, and what a model has read of it. As new, it is empty and fits every model; then only the model it was first
// used with.
struct TextContext {
  std::vector<std::int32_t> tokens;  // the text (after a shift: what is left of it)
  ModelState state;                  // of tokens[0 ... state.size() - 1]
};

// Reads a text into a context: the beginning that the context has read already is kept, what differs is forgotten, the
// rest, and the last token in any case, is read. type: of a state that has to be made (none: the operands' type).
// Returns how many tokens were read. Throws std::invalid_argument on an empty text, on one longer than ctx_len and on a
// token outside the vocabulary.
std::int64_t read_text(Model& model, std::span<const std::int32_t> text, TextContext& context,
                       std::optional<CacheType> type = std::nullopt);

// Reads the prompt, then draws tokens one by one; each new token costs O(context). on_token (may be empty) sees each
// token as it comes and says whether to go on. Throws std::invalid_argument on an empty prompt, on one longer than
// ctx_len (unless it is to shift), on a token outside the vocabulary and on bad options, before on_token is called;
// SamplingError later.
GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token = {});

// The same with a context that stays: what it has read of the prompt's beginning is not read again, and afterwards it
// holds the prompt and the new tokens, the last of which may be unread. The text is the same with any context.
GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        TextContext& context, const std::function<bool(std::int32_t)>& on_token = {});

struct BatchOptions {
  std::int64_t at_once = 16;  // texts that are written at a time, each with caches of its own
  std::int64_t samples = 1;   // of each prompt, which is read once; sample i draws from stream sampler.stream + i
  std::function<void(std::int64_t text, const GenerateResult& result)> on_end = {};  // as each text ends; may be empty
};

// Several texts, which the model reads together; as one ends the next one begins. Text i is sample i % samples of
// prompt i / samples, and it is the text that generate() gives alone with that stream. on_token sees the number of the
// text too; returning false ends that text alone. shared (may be null): what it has read of a prompt's beginning is not
// read again; it is left as it is. Throws as generate() does, and on at_once or samples below 1.
std::vector<GenerateResult> generate_batch(Model& model, std::span<const std::vector<std::int32_t>> prompts,
                                           const GenerateOptions& options, const BatchOptions& batch,
                                           const std::function<bool(std::int64_t, std::int32_t)>& on_token = {},
                                           const TextContext* shared = nullptr);

}  // namespace qkv
