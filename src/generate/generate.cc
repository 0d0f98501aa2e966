// SPDX-License-Identifier: Apache-2.0
#include "qkv/generate.h"

#include "qkv/engine.h"

namespace qkv {

std::string_view stop_reason_name(StopReason reason) noexcept {
  constexpr std::string_view kNames[] = {"max_tokens",  "end_token", "context_full", "callback",
                                         "stop_string", "cancelled", "failed"};
  return kNames[static_cast<std::size_t>(reason)];
}

GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token) {
  Engine engine(model, {.slots = 1, .chunk = 2048});
  GenerateResult result;
  engine.submit({prompt.begin(), prompt.end()}, options, [&](const EngineEvent& event) {
    if (event.result == nullptr) return !on_token || on_token(event.token);
    result = *event.result;
    return true;
  });
  while (engine.step()) {
  }
  if (result.error) std::rethrow_exception(result.error);
  return result;
}

}  // namespace qkv
