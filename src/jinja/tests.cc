// SPDX-License-Identifier: Apache-2.0
// What may follow `is`.
#include <stdexcept>

#include "jinja/compare.h"
#include "jinja/interpreter.h"

namespace qkv::jinja {

bool Interpreter::test(std::string_view name, const Value& value, Arguments& arguments) {
  const auto other = [&]() -> const Value& {
    if (arguments.given.size() != 1)
      throw std::invalid_argument("the test '" + std::string(name) + "' expected one value; found " +
                                  std::to_string(arguments.given.size()));
    return arguments.given[0];
  };
  const auto* boolean = value.get<bool>();
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "true") return boolean && *boolean;
  if (name == "false") return boolean && !*boolean;
  if (name == "boolean") return boolean != nullptr;
  if (name == "string") return value.string() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence") return value.list() || value.dict() || value.string() || value.is_undefined();
  if (name == "iterable") return value.list() || value.dict() || value.string() || value.is_undefined();
  if (name == "number") return value.number().has_value();
  if (name == "integer") return value.get<std::int64_t>() != nullptr;
  if (name == "float") return value.get<double>() != nullptr;
  if (name == "callable") return value.callable() && value.callable()->call;
  if (name == "odd" || name == "even") return (integer_of(value) % 2 != 0) == (name == "odd");
  if (name == "divisibleby") {
    if (integer_of(other()) == 0) throw std::invalid_argument("expected a divisor that is not 0; found 0");
    return *binary("%", value, other()).integer() == 0;
  }
  if (name == "upper" || name == "lower") {
    const MarkedText text = str(value);
    return !text.bytes.empty() && in_case(text, name == "upper" ? Case::upper : Case::lower).bytes == text.bytes &&
           in_case(text, name == "upper" ? Case::lower : Case::upper).bytes != text.bytes;
  }
  if (name == "equalto" || name == "eq" || name == "==") return equal(value, other());
  if (name == "ne" || name == "!=") return !equal(value, other());
  if (name == "in") return contains(other(), value);
  if (name == "lt" || name == "lessthan" || name == "<") return compare(value, other()) < 0;
  if (name == "le" || name == "<=") return compare(value, other()) <= 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return compare(value, other()) > 0;
  if (name == "ge" || name == ">=") return compare(value, other()) >= 0;
  if (name == "sameas") return value.is.index() == other().is.index() && equal(value, other());
  throw std::invalid_argument("expected the name of a test; found '" + std::string(name.substr(0, 60)) + "'");
}

}  // namespace qkv::jinja
