// SPDX-License-Identifier: Apache-2.0
#include "qkv/generate.h"

#include <utility>

#include "generate/sequence.h"

namespace qkv {

std::int64_t read_text(Model& model, std::span<const std::int32_t> text, TextContext& context,
                       std::optional<CacheType> type) {
  check_text(model.config(), text, false);
  take_over(model, text, type, context);
  const std::span<const std::int32_t> unread = text.subspan(static_cast<std::size_t>(context.state.size()));
  model.read(unread, context.state, {});
  return static_cast<std::int64_t>(unread.size());
}

GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        TextContext& context, const std::function<bool(std::int32_t)>& on_token) {
  check_request(model.config(), prompt, options);
  Sequence sequence(model, prompt, options, options.sampler.stream, std::move(context));
  try {
    while (!sequence.ended()) {
      model.read(sequence.unread(), sequence.state(), sequence.logits());
      sequence.has_read();
      sequence.draw(on_token);
    }
  } catch (...) {
    context = sequence.take_context();
    throw;
  }
  context = sequence.take_context();
  return sequence.take_result();
}

GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token) {
  TextContext context;
  return generate(model, prompt, options, context, on_token);
}

}  // namespace qkv
