// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>

#include "jinja/interpreter.h"

namespace qkv::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : names)
    if (known == name) {
      old = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}
const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->outer.get())
    for (const auto& [known, value] : scope->names)
      if (known == name) return &value;
  return nullptr;
}

class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& of) : of_(of) {
    if (of_.depth_ >= of_.limits_.depth)
      throw std::invalid_argument("expected calls nested less deep; found more than " +
                                  std::to_string(of_.limits_.depth));
    ++of_.depth_;
  }
  ~Deeper() { --of_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter& of_;
};

Interpreter::~Interpreter() {
  for (const auto& space : spaces_) space->items.clear();
  for (const auto& scope : scopes_) scope->names.clear();
}

void Interpreter::spend(std::size_t steps) {
  steps_ += static_cast<std::int64_t>(steps);
  if (steps_ > limits_.steps)
    throw std::invalid_argument("expected a template of at most " + std::to_string(limits_.steps) +
                                " steps; found more");
}
void Interpreter::spend_bytes(std::size_t bytes) {
  bytes_ += static_cast<std::int64_t>(std::min<std::size_t>(bytes, std::size_t{1} << 40));
  if (bytes_ > limits_.bytes)
    throw std::invalid_argument("expected strings of at most " + std::to_string(limits_.bytes) +
                                " bytes together; found more");
}
Value Interpreter::made(MarkedText text) {
  spend_bytes(text.bytes.size());
  return Value::text(std::move(text));
}
Value Interpreter::made(std::vector<Value> items, bool tuple) {
  spend_bytes(items.size() * sizeof(Value));
  return make_list(std::move(items), tuple);
}
Value Interpreter::keep(std::shared_ptr<Namespace> space) {
  spend_bytes(sizeof(Namespace));
  spaces_.push_back(space);
  return Value(std::move(space));
}

MarkedText Interpreter::run(const Node& root, const std::vector<std::pair<std::string, Value>>& variables) {
  try {
    const auto scope = std::make_shared<Scope>();
    scope->names = variables;
    MarkedText out;
    execute(root, scope, out);
    return out;
  } catch (const std::invalid_argument& error) {
    throw TemplateError(line_, column_, error.what());
  }
}

void Interpreter::add(MarkedText& out, const Value& value) {
  if (const MarkedText* text = value.string()) {
    spend_bytes(text->bytes.size());
    return out.add(*text);
  }
  const MarkedText text = str(value);
  spend_bytes(text.bytes.size());
  out.add(text);
}

MarkedText Interpreter::text_of(const Node& body, const ScopePtr& scope) {
  MarkedText text;
  execute(body, scope, text);
  return text;
}

Interpreter::Leave Interpreter::execute(const Node& node, const ScopePtr& scope, MarkedText& out) {
  const Deeper deeper(*this);
  spend();
  at(node);
  const auto inner = [&] {
    auto made = std::make_shared<Scope>();
    made->outer = scope;
    return made;
  };
  switch (node.kind) {
    case Node::block:
      for (const NodePtr& child : node.children)
        if (const Leave leave = execute(*child, scope, out); leave != Leave::nothing) return leave;
      break;
    case Node::data:
      add(out, node.value);
      break;
    case Node::output:
      add(out, evaluate(*node.children[0], scope));
      break;
    case Node::for_loop:
      return for_loop(node, scope, out);
    case Node::if_chain:
      for (std::size_t i = 0; i < node.children.size(); i += 2) {
        if (i + 1 == node.children.size()) return execute(*node.children[i], scope, out);
        if (truth(evaluate(*node.children[i], scope))) return execute(*node.children[i + 1], scope, out);
      }
      break;
    case Node::set:
      assign(node, evaluate(*node.children[0], scope), scope);
      break;
    case Node::set_block: {
      const ScopePtr own = inner();
      Value value = made(text_of(*node.children[0], own));
      if (node.children.size() > 1) {
        own->set("\n", value);
        value = evaluate(*node.children[1], own);
      }
      assign(node, std::move(value), scope);
      break;
    }
    case Node::filter_block: {
      const ScopePtr own = inner();
      own->set("\n", made(text_of(*node.children[0], own)));
      add(out, evaluate(*node.children[1], own));
      break;
    }
    case Node::with: {
      const ScopePtr own = inner();
      for (const auto& [name, value] : node.named) own->set(name, evaluate(*value, scope));
      return execute(*node.children[0], own, out);
    }
    case Node::macro:
      scope->set(node.text, macro(node, scope));
      break;
    case Node::call_block: {
      const Node& call_node = *node.children[0];
      const Value function = evaluate(*call_node.children[0], scope);
      Arguments given = arguments(call_node, 1, scope);
      given.named.emplace_back("caller", macro(*node.children[1], scope));
      add(out, call(function, given));
      break;
    }
    case Node::break_loop:
      return Leave::loop;
    case Node::continue_loop:
      return Leave::round;
    default:
      throw std::invalid_argument("expected a statement");
  }
  return Leave::nothing;
}

void Interpreter::unpack(const Node& node, const Value& value, Scope& scope) {
  if (node.names.size() == 1) return scope.set(node.names[0], value);
  const std::vector<Value> items = items_of(value);
  if (items.size() != node.names.size())
    throw std::invalid_argument("expected " + std::to_string(node.names.size()) + " values for as many names; found " +
                                std::to_string(items.size()));
  for (std::size_t i = 0; i < items.size(); ++i) scope.set(node.names[i], items[i]);
}

void Interpreter::assign(const Node& node, Value value, const ScopePtr& scope) {
  at(node);
  spend_bytes(sizeof(Value));
  if (node.text.empty()) return unpack(node, value, *scope);
  const Value* space = scope->find(node.text);
  if (!space || !space->space())
    throw std::invalid_argument("expected a namespace named '" + node.text + "'; found " +
                                std::string(space ? type_name(*space) : "nothing of this name"));
  const std::string& name = node.names[0];
  if (name.starts_with('_'))
    throw std::invalid_argument("expected a name without '_' at its beginning; found '" + name + "'");
  if (Value* old = space->space()->find(name))
    *old = std::move(value);
  else
    space->space()->items.emplace_back(name, std::move(value));
}

Interpreter::Leave Interpreter::for_loop(const Node& node, const ScopePtr& scope, MarkedText& out) {
  std::vector<Value> items = items_of(evaluate(*node.children[0], scope));
  const auto round = [&] {
    auto made = std::make_shared<Scope>();
    made->outer = scope;
    return made;
  };
  if (const NodePtr& condition = node.children[1]) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const ScopePtr own = round();
      unpack(node, item, *own);
      if (truth(evaluate(*condition, own))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return node.children[3] ? execute(*node.children[3], round(), out) : Leave::nothing;
  spend_bytes(items.size() * sizeof(Value));
  const auto last_changed = std::make_shared<std::optional<std::vector<Value>>>();
  const auto count = static_cast<std::int64_t>(items.size());
  for (std::int64_t i = 0; i < count; ++i) {
    spend(10);  // what a loop variable costs
    const auto loop = std::make_shared<Callable>();
    loop->name = "loop";
    loop->members = {
        {"index", Value(i + 1)},
        {"index0", Value(i)},
        {"revindex", Value(count - i)},
        {"revindex0", Value(count - i - 1)},
        {"first", Value(i == 0)},
        {"last", Value(i == count - 1)},
        {"length", Value(count)},
        {"depth", Value(std::int64_t{1})},
        {"depth0", Value(std::int64_t{0})},
        {"previtem", i > 0 ? items[static_cast<std::size_t>(i) - 1] : Value::undefined("previtem")},
        {"nextitem", i + 1 < count ? items[static_cast<std::size_t>(i) + 1] : Value::undefined("nextitem")}};
    const auto cycle = std::make_shared<Callable>();
    cycle->name = "cycle";
    cycle->call = [i](Interpreter&, Arguments& arguments) {
      if (arguments.given.empty()) throw std::invalid_argument("cycle expected values; found none");
      return arguments.given[static_cast<std::size_t>(i) % arguments.given.size()];
    };
    const auto changed = std::make_shared<Callable>();
    changed->name = "changed";
    changed->call = [last_changed](Interpreter& in, Arguments& arguments) {
      in.spend(arguments.given.size());
      const bool same = *last_changed &&
                        std::equal((*last_changed)->begin(), (*last_changed)->end(), arguments.given.begin(),
                                   arguments.given.end(), [](const Value& a, const Value& b) { return equal(a, b); });
      if (!same) *last_changed = arguments.given;
      return Value(!same);
    };
    loop->members.emplace_back("cycle", Value(cycle));
    loop->members.emplace_back("changed", Value(changed));
    const ScopePtr own = round();
    unpack(node, items[static_cast<std::size_t>(i)], *own);
    own->set("loop", Value(loop));
    if (execute(*node.children[2], own, out) == Leave::loop) break;
  }
  return Leave::nothing;
}

Value Interpreter::macro(const Node& node, const ScopePtr& scope) {
  spend_bytes(sizeof(Callable));
  scopes_.push_back(scope);
  auto made = std::make_shared<Callable>();
  made->name = node.text;
  made->members = {{"name", Value::text(node.text)}};
  made->call = [&node, weak = std::weak_ptr<Scope>(scope)](Interpreter& in, Arguments& arguments) {
    return in.call_macro(node, weak.lock(), arguments);
  };
  return Value(std::move(made));
}

Value Interpreter::call_macro(const Node& node, const ScopePtr& scope, Arguments& given) {
  const Deeper deeper(*this);
  const int line = line_, column = column_;
  auto own = std::make_shared<Scope>();
  own->outer = scope;
  if (given.given.size() > node.names.size())
    throw std::invalid_argument(node.text + " expected at most " + std::to_string(node.names.size()) +
                                " arguments; found " + std::to_string(given.given.size()));
  for (auto& [name, value] : given.named) {
    const auto known = std::find(node.names.begin(), node.names.end(), name);
    if (known == node.names.end() && name != "caller")
      throw std::invalid_argument(node.text + " expected no argument '" + name + "'; found it");
    if (known != node.names.end() && static_cast<std::size_t>(known - node.names.begin()) < given.given.size())
      throw std::invalid_argument(node.text + " expected one argument '" + name + "'; found two");
    own->set(name, value);
  }
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    const std::string& name = node.names[i];
    if (i < given.given.size()) {
      own->set(name, given.given[i]);
    } else if (std::none_of(given.named.begin(), given.named.end(),
                            [&](const auto& one) { return one.first == name; })) {
      const auto standard =
          std::find_if(node.named.begin(), node.named.end(), [&](const auto& one) { return one.first == name; });
      own->set(name, standard == node.named.end() ? Value::undefined(name) : evaluate(*standard->second, own));
    }
  }
  Value result = made(text_of(*node.children[0], own));
  line_ = line, column_ = column;
  return result;
}

Value Interpreter::evaluate(const Node& node, const ScopePtr& scope) {
  const Deeper deeper(*this);
  spend();
  switch (node.kind) {
    case Node::constant:
      if (node.value.is_undefined()) return *scope->find("\n");  // what a block's filter is given
      return node.value;
    case Node::name: {
      if (const Value* value = scope->find(node.text)) return *value;
      if (const Value* value = global(node.text)) return *value;
      return Value::undefined(node.text);
    }
    case Node::list:
    case Node::tuple: {
      std::vector<Value> items;
      for (const NodePtr& child : node.children) items.push_back(evaluate(*child, scope));
      at(node);
      return made(std::move(items), node.kind == Node::tuple);
    }
    case Node::dict: {
      std::vector<std::pair<Value, Value>> items;
      for (std::size_t i = 0; i + 1 < node.children.size(); i += 2)
        items.emplace_back(evaluate(*node.children[i], scope), evaluate(*node.children[i + 1], scope));
      at(node);
      spend(items.size() * items.size());
      spend_bytes(items.size() * 2 * sizeof(Value));
      return make_dict(std::move(items));
    }
    case Node::attribute: {
      const Value of = evaluate(*node.children[0], scope);
      at(node);
      return attribute(of, node.text);
    }
    case Node::item: {
      const Value of = evaluate(*node.children[0], scope), key = evaluate(*node.children[1], scope);
      at(node);
      return item(of, key);
    }
    case Node::slice:
      return slice(node, scope);
    case Node::call: {
      const Value function = evaluate(*node.children[0], scope);
      Arguments given = arguments(node, 1, scope);
      at(node);
      return call(function, given);
    }
    case Node::filter:
    case Node::test: {
      const Value value = evaluate(*node.children[0], scope);
      Arguments given = arguments(node, 1, scope);
      at(node);
      return node.kind == Node::filter ? filter(node.text, value, given) : Value(test(node.text, value, given));
    }
    case Node::unary:
      return unary(node, scope);
    case Node::binary: {
      Value left = evaluate(*node.children[0], scope);
      if (node.text == "and") return truth(left) ? evaluate(*node.children[1], scope) : left;
      if (node.text == "or") return truth(left) ? left : evaluate(*node.children[1], scope);
      const Value right = evaluate(*node.children[1], scope);
      at(node);
      return binary(node.text, left, right);
    }
    case Node::comparison:
      return Value(comparison(node, scope));
    case Node::concat: {
      MarkedText text;
      for (const NodePtr& child : node.children) text.add(str(evaluate(*child, scope)));
      at(node);
      return made(std::move(text));
    }
    case Node::conditional:
      if (truth(evaluate(*node.children[1], scope))) return evaluate(*node.children[0], scope);
      return node.children[2] ? evaluate(*node.children[2], scope)
                              : Value::undefined("the value of an if without else");
    default:
      throw std::invalid_argument("expected an expression");
  }
}

}  // namespace qkv::jinja
