// SPDX-License-Identifier: Apache-2.0
#include "jinja/template.h"

#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace qkv::jinja {

Template::Template(std::string_view text) : root_(parse(text)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

MarkedText Template::render(const std::vector<std::pair<std::string, Value>>& variables, const std::tm& now,
                            const Limits& limits) const {
  return Interpreter(now, limits).run(*root_, variables);
}

}  // namespace qkv::jinja
