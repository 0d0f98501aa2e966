// SPDX-License-Identifier: Apache-2.0
#include "qkv/generate.h"

#include <algorithm>

#include "c_api/model_handle.h"

namespace {

using qkv::c_api::guarded;
using qkv::c_api::require_given;

qkv::GenerateOptions options_of(const qkv_generate_options* given, const qkv_model& model) {
  qkv_generate_options defaults;
  qkv_generate_options_init(&defaults);
  const qkv_generate_options& from = given == nullptr ? defaults : *given;
  qkv::GenerateOptions options;
  options.max_tokens = from.max_tokens;
  options.sampler.temperature = from.temperature;
  options.sampler.top_k = from.top_k;
  options.sampler.top_p = from.top_p;
  options.sampler.min_p = from.min_p;
  options.sampler.repeat_penalty = from.repeat_penalty;
  options.sampler.seed = from.seed;
  options.shift = from.shift != 0;
  options.end_tokens = model.loaded.end_tokens;
  const std::int32_t end = model.loaded.tokenizer.end_token();
  if (options.end_tokens.empty() && end >= 0) options.end_tokens = {end};
  options.vocab_limit = std::min(model.loaded.model.config().vocab_size, model.loaded.tokenizer.size());
  return options;
}

}  // namespace

extern "C" {

void qkv_generate_options_init(qkv_generate_options* options) {
  if (options == nullptr) return;
  const qkv::GenerateOptions defaults;
  const qkv::SamplerOptions& sampler = defaults.sampler;
  *options = {defaults.max_tokens, sampler.temperature,    sampler.top_k, sampler.top_p,
              sampler.min_p,       sampler.repeat_penalty, sampler.seed,  defaults.shift ? 1 : 0};
}

qkv_status qkv_generate(qkv_model* model, const int32_t* prompt, size_t prompt_len, const qkv_generate_options* options,
                        qkv_on_token on_token, void* user, int32_t* tokens, size_t capacity, size_t* count,
                        qkv_stop_reason* reason) {
  return guarded([&] {
    constexpr const char* kWhere = "qkv_generate";
    require_given(model, kWhere, "model");
    if (prompt_len > 0) require_given(prompt, kWhere, "prompt");
    std::function<bool(std::int32_t)> tell;
    if (on_token != nullptr) tell = [&](std::int32_t token) { return on_token(user, token) != 0; };
    const qkv::GenerateResult result =
        qkv::generate(model->loaded.model, std::span(prompt, prompt_len), options_of(options, *model), tell);
    if (count != nullptr) *count = result.tokens.size();
    if (reason != nullptr) *reason = static_cast<qkv_stop_reason>(result.reason);
    if (tokens == nullptr) return;
    std::copy_n(result.tokens.begin(), std::min(capacity, result.tokens.size()), tokens);
    qkv::c_api::check_capacity(result.tokens.size(), capacity, kWhere);
  });
}

}  // extern "C"
