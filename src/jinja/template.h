// SPDX-License-Identifier: Apache-2.0
// Jinja templates, as far as the chat templates of language models use them (docs/chat_templates.md). A template has no
// access to anything but what render() is given.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/marked_text.h"
#include "jinja/value.h"

namespace qkv::jinja {

// What is wrong with a template, or what it says itself (raise_exception); what() begins with "line L, column C: ".
class TemplateError : public std::runtime_error {
 public:
  TemplateError(int line, int column, const std::string& reason)
      : std::runtime_error("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + reason),
        line_(line),
        column_(column) {}
  int line() const noexcept { return line_; }
  int column() const noexcept { return column_; }

 private:
  int line_, column_;
};

struct Limits {
  std::int64_t steps = 4'000'000;              // expressions and statements evaluated, items visited
  std::int64_t bytes = std::int64_t{1} << 28;  // of all strings and lists made, whether they still exist or not
  int depth = 300;                             // of nested expressions, statements and calls
};

struct Node;

// Immutable once made, so any number of threads may use one.
class Template {
 public:
  explicit Template(std::string_view text);  // throws TemplateError
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // now: what strftime_now writes. Throws TemplateError.
  MarkedText render(const std::vector<std::pair<std::string, Value>>& variables, const std::tm& now,
                    const Limits& limits = {}) const;

 private:
  std::unique_ptr<const Node> root_;
};

}  // namespace qkv::jinja
