// SPDX-License-Identifier: Apache-2.0
#include "jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "jinja/lexer.h"
#include "jinja/template.h"

namespace qkv::jinja {
namespace {

constexpr int kDeepestTree = 150;

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens_of(text)) {}

  NodePtr run() {
    NodePtr root = body({});
    return root;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[noreturn]] void fail(const std::string& expected) const {
    constexpr const char* kWhat[] = {
        "text", "{%", "%}", "{{", "}}", "name", "string", "number", "number", "", "the end of the template"};
    const std::string found =
        now().text.empty() || now().kind == Token::data ? kWhat[now().kind] : "'" + now().text.substr(0, 60) + "'";
    throw TemplateError(now().line, now().column, "expected " + expected + "; found " + found);
  }
  bool is(Token::Kind kind) const { return now().kind == kind; }
  bool is(std::string_view symbol) const { return now().kind == Token::symbol && now().text == symbol; }
  bool is_word(std::string_view word) const { return now().kind == Token::name && now().text == word; }
  bool take(std::string_view symbol) { return is(symbol) && (++at_, true); }
  bool take_word(std::string_view word) { return is_word(word) && (++at_, true); }
  void expect(std::string_view symbol) {
    if (!take(symbol)) fail("'" + std::string(symbol) + "'");
  }
  void expect_word(std::string_view word) {
    if (!take_word(word)) fail("'" + std::string(word) + "'");
  }
  void expect(Token::Kind kind, const char* what) {
    if (!is(kind)) fail(what);
    ++at_;
  }
  std::string name() {
    if (!is(Token::name)) fail("a name");
    return next().text;
  }

  NodePtr node(Node::Kind kind, std::string text = "") const {
    auto made = std::make_unique<Node>();
    made->kind = kind;
    made->line = now().line;
    made->column = now().column;
    made->text = std::move(text);
    return made;
  }
  NodePtr node(Node::Kind kind, const Token& token, std::string text = "") const {
    NodePtr made = node(kind, std::move(text));
    made->line = token.line, made->column = token.column;
    return made;
  }
  // Trees are never so deep that they could not be visited.
  void check_depth(const Node& parent) const {
    if (parent.depth > kDeepestTree)
      throw TemplateError(parent.line, parent.column,
                          "expected a template nested at most " + std::to_string(kDeepestTree) + " deep; found more");
  }
  void add(Node& parent, NodePtr child) const {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    parent.children.push_back(std::move(child));
    check_depth(parent);
  }
  void add(Node& parent, std::string key, NodePtr child) const {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    parent.named.emplace_back(std::move(key), std::move(child));
    check_depth(parent);
  }
  class Deeper {
   public:
    explicit Deeper(Parser& of) : of_(of) {
      if (++of_.depth_ > kDeepestTree) of_.fail("a template nested at most " + std::to_string(kDeepestTree) + " deep");
    }
    ~Deeper() { --of_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Parser& of_;
  };

  // Statements up to a tag of one of these names, whose name is then the token at hand.
  NodePtr body(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    NodePtr block = node(Node::block);
    for (;;) {
      if (is(Token::end)) {
        if (ends.size() > 0) fail("{% " + std::string(*ends.begin()) + " %}");
        return block;
      }
      if (is(Token::data)) {
        NodePtr data = node(Node::data);
        data->value = Value::text(next().text);
        add(*block, std::move(data));
      } else if (is(Token::variable_begin)) {
        NodePtr output = node(Node::output);
        ++at_;
        add(*output, tuple(true));
        expect(Token::variable_end, "}}");
        add(*block, std::move(output));
      } else {
        expect(Token::block_begin, "text or a tag");
        if (!is(Token::name)) fail("the name of a tag");
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return block;
        add(*block, statement());
      }
    }
  }
  NodePtr body_to(std::string_view end) {
    NodePtr block = body({end});
    expect_word(end);
    return block;
  }
  void end_tag() { expect(Token::block_end, "%}"); }

  NodePtr statement() {
    const Token& tag = now();
    if (take_word("for")) return for_loop(tag);
    if (take_word("if")) return if_chain(tag);
    if (take_word("set")) return set(tag);
    if (take_word("with")) return with(tag);
    if (take_word("macro")) return macro(tag);
    if (take_word("call")) return call_block(tag);
    if (take_word("filter")) return filter_block(tag);
    if (take_word("generation")) {
      end_tag();
      NodePtr block = node(Node::with, tag);
      add(*block, body_to("endgeneration"));
      end_tag();
      return block;
    }
    if (is_word("break") || is_word("continue")) {
      if (loops_ == 0) fail("'" + now().text + "' within a loop only");
      NodePtr leave = node(now().text == "break" ? Node::break_loop : Node::continue_loop);
      ++at_;
      end_tag();
      return leave;
    }
    fail("one of the tags for, if, set, with, macro, call, filter, generation, break, continue or raw");
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool bracket = take("(");
    do {
      if (names.size() > 0 && (is_word("in") || is(")") || is("="))) break;
      names.push_back(name());
    } while (take(","));
    if (bracket) expect(")");
    return names;
  }

  NodePtr for_loop(const Token& tag) {
    NodePtr loop = node(Node::for_loop, tag);
    loop->names = targets();
    if (tokens_[at_ - 1].text == ",") loop->text = "unpack";
    expect_word("in");
    add(*loop, tuple(false));
    add(*loop, take_word("if") ? expression() : nullptr);
    if (is_word("recursive")) fail("a loop that is not recursive");
    end_tag();
    ++loops_;
    add(*loop, body({"endfor", "else"}));
    --loops_;
    NodePtr otherwise;
    if (take_word("else")) {
      end_tag();
      otherwise = body({"endfor"});
    }
    expect_word("endfor");
    end_tag();
    add(*loop, std::move(otherwise));
    return loop;
  }

  NodePtr if_chain(const Token& tag) {  // condition, body, condition, body, ..., [body]
    NodePtr chain = node(Node::if_chain, tag);
    for (;;) {
      add(*chain, tuple(false, true));
      end_tag();
      add(*chain, body({"endif", "else", "elif"}));
      if (take_word("elif")) continue;
      if (take_word("else")) {
        end_tag();
        add(*chain, body({"endif"}));
      }
      expect_word("endif");
      end_tag();
      return chain;
    }
  }

  NodePtr set(const Token& tag) {
    NodePtr made = node(Node::set, tag);
    if (is(Token::name) && tokens_[at_ + 1].kind == Token::symbol && tokens_[at_ + 1].text == ".") {
      made->text = name();
      ++at_;
      made->names.push_back(name());
    } else {
      made->names = targets();
      if (tokens_[at_ - 1].text == "," && made->names.size() == 1) fail("a second name");
    }
    if (take("=")) {
      add(*made, tuple(true));
      end_tag();
      return made;
    }
    if (made->names.size() != 1) fail("'='");
    made->kind = Node::set_block;
    NodePtr placeholder = node(Node::constant);
    NodePtr filtered = filters(std::move(placeholder));
    end_tag();
    add(*made, body_to("endset"));
    end_tag();
    if (filtered->kind == Node::filter) add(*made, std::move(filtered));
    return made;
  }

  NodePtr with(const Token& tag) {
    NodePtr made = node(Node::with, tag);
    while (!is(Token::block_end)) {
      if (!made->named.empty()) expect(",");
      std::string key = name();
      expect("=");
      add(*made, std::move(key), expression());
    }
    end_tag();
    add(*made, body_to("endwith"));
    end_tag();
    return made;
  }

  void parameters(Node& of) {
    expect("(");
    while (!take(")")) {
      if (!of.names.empty()) expect(",");
      of.names.push_back(name());
      if (take("="))
        add(of, of.names.back(), expression());
      else if (!of.named.empty())
        fail("a default, as the parameter before has one");
    }
  }

  NodePtr macro(const Token& tag) {
    NodePtr made = node(Node::macro, tag, name());
    parameters(*made);
    end_tag();
    const int loops = std::exchange(loops_, 0);
    add(*made, body_to("endmacro"));
    loops_ = loops;
    end_tag();
    return made;
  }

  NodePtr call_block(const Token& tag) {
    NodePtr made = node(Node::call_block, tag), caller = node(Node::macro, tag, "caller");
    if (is("(")) parameters(*caller);
    NodePtr call = unary(true);
    if (call->kind != Node::call) fail("a call");
    end_tag();
    const int loops = std::exchange(loops_, 0);
    add(*caller, body_to("endcall"));
    loops_ = loops;
    end_tag();
    add(*made, std::move(call));
    add(*made, std::move(caller));
    return made;
  }

  NodePtr filter_block(const Token& tag) {
    NodePtr made = node(Node::filter_block, tag);
    NodePtr filtered = filter(node(Node::constant));
    filtered = filters(std::move(filtered));
    end_tag();
    add(*made, body_to("endfilter"));
    end_tag();
    add(*made, std::move(filtered));
    return made;
  }

  // a, b, c is a tuple. with_condition: `a if b else c` is taken whole.
  NodePtr tuple(bool with_condition, bool condition_only = false) {
    const Token& first = now();
    NodePtr one = with_condition || condition_only ? expression() : disjunction();
    if (!is(",") || condition_only) return one;
    NodePtr made = node(Node::tuple, first);
    add(*made, std::move(one));
    while (take(",")) {
      if (is(Token::variable_end) || is(Token::block_end) || is(")") || is_word("if")) break;
      add(*made, with_condition ? expression() : disjunction());
    }
    return made;
  }

  NodePtr expression() {
    const Deeper deeper(*this);
    NodePtr left = disjunction();
    while (is_word("if")) {
      NodePtr made = node(Node::conditional, next());
      add(*made, std::move(left));
      add(*made, disjunction());
      add(*made, take_word("else") ? expression() : nullptr);
      left = std::move(made);
    }
    return left;
  }

  NodePtr binary(NodePtr left, const Token& token, NodePtr right) {
    NodePtr made = node(Node::binary, token, token.text);
    add(*made, std::move(left));
    add(*made, std::move(right));
    return made;
  }
  NodePtr disjunction() {
    NodePtr left = conjunction();
    while (is_word("or")) {
      const Token& token = next();
      left = binary(std::move(left), token, conjunction());
    }
    return left;
  }
  NodePtr conjunction() {
    NodePtr left = negation();
    while (is_word("and")) {
      const Token& token = next();
      left = binary(std::move(left), token, negation());
    }
    return left;
  }
  NodePtr negation() {
    const Deeper deeper(*this);
    if (!is_word("not")) return comparison();
    NodePtr made = node(Node::unary, next(), "not");
    add(*made, negation());
    return made;
  }
  NodePtr comparison() {
    NodePtr first = sum();
    NodePtr made;
    for (;;) {
      std::string op;
      const bool negated = is_word("not") && tokens_[at_ + 1].kind == Token::name && tokens_[at_ + 1].text == "in";
      for (const std::string_view known : {"==", "!=", "<", "<=", ">", ">="})
        if (is(known)) op = known;
      if (is_word("in")) op = "in";
      if (negated) op = "not in";
      if (op.empty()) return made ? std::move(made) : std::move(first);
      if (!made) {
        made = node(Node::comparison);
        add(*made, std::move(first));
      }
      at_ += negated ? 2 : 1;
      made->names.push_back(op);
      add(*made, sum());
    }
  }
  NodePtr sum() {
    NodePtr left = concat();
    while (is("+") || is("-")) {
      const Token& token = next();
      left = binary(std::move(left), token, concat());
    }
    return left;
  }
  NodePtr concat() {
    NodePtr first = product();
    if (!is("~")) return first;
    NodePtr made = node(Node::concat);
    add(*made, std::move(first));
    while (take("~")) add(*made, product());
    return made;
  }
  NodePtr product() {
    NodePtr left = power();
    while (is("*") || is("/") || is("//") || is("%")) {
      const Token& token = next();
      left = binary(std::move(left), token, power());
    }
    return left;
  }
  NodePtr power() {
    NodePtr left = unary(true);
    while (is("**")) {
      const Token& token = next();
      left = binary(std::move(left), token, unary(true));
    }
    return left;
  }
  NodePtr unary(bool with_filters) {
    const Deeper deeper(*this);
    NodePtr made;
    if (is("-") || is("+")) {
      made = node(Node::unary, now(), now().text);
      ++at_;
      add(*made, unary(false));
    } else {
      made = primary();
    }
    made = postfix(std::move(made));
    return with_filters ? filters(std::move(made)) : std::move(made);
  }

  NodePtr constant(Value value) {
    NodePtr made = node(Node::constant);
    made->value = std::move(value);
    ++at_;
    return made;
  }
  NodePtr primary() {
    const Token& token = now();
    if (is(Token::name)) {
      if (token.text == "true" || token.text == "True") return constant(Value(true));
      if (token.text == "false" || token.text == "False") return constant(Value(false));
      if (token.text == "none" || token.text == "None") return constant(Value::none());
      for (const std::string_view word : {"and", "or", "not", "in", "is", "if", "else", "elif"})
        if (token.text == word) fail("an expression");
      return node(Node::name, next(), token.text);
    }
    if (is(Token::string)) {
      NodePtr made = node(Node::constant);
      std::string text;
      while (is(Token::string)) text += next().text;
      made->value = Value::text(text);
      return made;
    }
    if (is(Token::integer)) {
      std::int64_t value = 0;
      if (std::from_chars(token.text.data(), token.text.data() + token.text.size(), value).ec != std::errc())
        fail("an integer of at most 63 bits");
      return constant(Value(value));
    }
    if (is(Token::number)) {
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      return constant(Value(value));
    }
    if (take("(")) {
      NodePtr inner = is(")") ? node(Node::tuple) : tuple(true);
      expect(")");
      return inner;
    }
    if (take("[")) {
      NodePtr made = node(Node::list, token);
      while (!take("]")) {
        if (!made->children.empty()) expect(",");
        if (take("]")) break;
        add(*made, expression());
      }
      return made;
    }
    if (take("{")) {
      NodePtr made = node(Node::dict, token);
      while (!take("}")) {
        if (!made->children.empty()) expect(",");
        if (take("}")) break;
        add(*made, expression());
        expect(":");
        add(*made, expression());
      }
      return made;
    }
    fail("an expression");
  }

  NodePtr postfix(NodePtr of) {
    for (;;) {
      const Token& token = now();
      if (take(".")) {
        NodePtr made = node(Node::attribute, token);
        if (is(Token::integer)) {
          made->kind = Node::item;
          add(*made, std::move(of));
          add(*made, primary());
        } else {
          made->text = name();
          add(*made, std::move(of));
        }
        of = std::move(made);
      } else if (is("[")) {
        of = subscript(std::move(of));
      } else if (is("(")) {
        NodePtr made = node(Node::call, token);
        add(*made, std::move(of));
        arguments(*made);
        of = std::move(made);
      } else {
        return of;
      }
    }
  }

  NodePtr subscript(NodePtr of) {
    NodePtr made = node(Node::item);
    expect("[");
    add(*made, std::move(of));
    if (!is(":")) add(*made, expression());
    if (is(":")) {
      made->kind = Node::slice;
      if (made->children.size() == 1) add(*made, nullptr);
      while (made->children.size() < 4) {
        const bool given = take(":") && !is(":") && !is("]");
        add(*made, given ? expression() : nullptr);
      }
    }
    expect("]");
    return made;
  }

  void arguments(Node& to) {
    expect("(");
    for (bool first = true; !take(")"); first = false) {
      if (!first) expect(",");
      if (take(")")) break;
      if (is("*") || is("**")) fail("arguments without '*'");
      const Token& following = tokens_[at_ + 1];
      if (is(Token::name) && following.kind == Token::symbol && following.text == "=") {
        std::string key = name();
        ++at_;
        add(to, std::move(key), expression());
      } else {
        if (!to.named.empty()) fail("a keyword argument, as the one before is one");
        add(to, expression());
      }
    }
  }

  std::string dotted() {
    std::string text = name();
    while (take(".")) text += "." + name();
    return text;
  }
  NodePtr filter(NodePtr of) {
    NodePtr made = node(Node::filter);
    made->text = dotted();
    add(*made, std::move(of));
    if (is("(")) arguments(*made);
    return made;
  }
  NodePtr filters(NodePtr of) {
    for (;;) {
      if (take("|")) {
        of = filter(std::move(of));
      } else if (is_word("is")) {
        of = test(std::move(of));
      } else if (is("(")) {
        of = postfix(std::move(of));
      } else {
        return of;
      }
    }
  }
  NodePtr test(NodePtr of) {
    const Token& token = next();
    const bool negated = take_word("not");
    NodePtr made = node(Node::test, token);
    made->text = dotted();
    add(*made, std::move(of));
    const bool begins =
        is(Token::name) || is(Token::string) || is(Token::integer) || is(Token::number) || is("[") || is("{");
    if (is("(")) {
      arguments(*made);
    } else if (begins && !is_word("else") && !is_word("or") && !is_word("and")) {
      if (is_word("is")) fail("one test at a time");
      add(*made, postfix(primary()));
    }
    if (!negated) return made;
    NodePtr opposite = node(Node::unary, token, "not");
    add(*opposite, std::move(made));
    return opposite;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

NodePtr parse(std::string_view text) { return Parser(text).run(); }

}  // namespace qkv::jinja
