// SPDX-License-Identifier: Apache-2.0
#include "text/pattern.h"

#include <new>
#include <stdexcept>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace qkv {
namespace {

[[noreturn]] void fail(const std::string& expression, int error, std::size_t offset) {
  if (error == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  unsigned char message[256] = {};
  pcre2_get_error_message(error, message, sizeof message);
  throw std::invalid_argument("[tokenizer] expected a valid pattern; found " + expression + " (at " +
                              std::to_string(offset) + ": " + reinterpret_cast<const char*>(message) + ")");
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression) : expression_(expression), code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF | PCRE2_UCP,
                              &error, &offset, nullptr);
  if (!code_->code) fail(expression, error, offset);
  // Without a JIT compiler the interpreter gives the same matches.
  static_cast<void>(pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE));
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

struct Pattern::Matcher::State {
  const Pattern* pattern = nullptr;
  pcre2_match_data* data = nullptr;
  ~State() { pcre2_match_data_free(data); }
};

Pattern::Matcher::Matcher(const Pattern& pattern) : state_(std::make_unique<State>()) {
  state_->pattern = &pattern;
  state_->data = pcre2_match_data_create_from_pattern(pattern.code_->code, nullptr);
  if (!state_->data) throw std::bad_alloc();
}

Pattern::Matcher::~Matcher() = default;
Pattern::Matcher::Matcher(Matcher&&) noexcept = default;

Pattern::Match Pattern::Matcher::find(std::string_view text, std::size_t from) {
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(state_->pattern->code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | options, state_->data, nullptr);
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);  // the interpreter allocates memory as needed
  if (result == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
  if (result < 0) fail(state_->pattern->expression(), result, from);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state_->data);
  return {range[0], range[1]};
}

}  // namespace qkv
