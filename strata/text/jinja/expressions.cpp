#include "strata/text/jinja/expressions_inl.h"

#include <charconv>

#include "strata/core/error.h"

namespace strata::text::jinja {

// Chains of operators make trees as deep as they are long.
template <class Operand>
NodePtr Expressions::chain(std::initializer_list<const char*> ops, What what, Operand operand) {
  NodePtr left = operand();
  for (int64_t length = 0;;) {
    const char* found = nullptr;
    for (const char* op : ops)
      if (peek().is(op)) found = op;
    if (!found) return left;
    if (++length > depth_) error("a chain of more than " + std::to_string(depth_) + " operators");
    const int line = next().line;
    left = two(what, line, std::move(left), operand(), found);
  }
}

NodePtr Expressions::tuple(bool conditions) {
  Deeper deeper(*this);
  const int line = peek().line;
  std::vector<NodePtr> items;
  bool is_tuple = false;
  const auto ends = [&] {
    const Token& t = peek();
    return t.kind == Token::output_end || t.kind == Token::block_end || t.op_is(")") || t.is("recursive") ||
           (!conditions && t.is("if"));
  };
  for (;;) {
    if (ends()) break;
    items.push_back(conditions ? expression() : logic_or());
    if (!accept_op(",")) break;
    is_tuple = true;
  }
  if (is_tuple) {
    NodePtr n = make(What::tuple, line);
    n->kids = std::move(items);
    return n;
  }
  if (items.empty()) error("expected an expression, got " + shown());
  return std::move(items[0]);
}

NodePtr Expressions::expression() {
  Deeper deeper(*this);
  const int line = peek().line;
  NodePtr value = logic_or();
  while (accept("if")) {
    NodePtr n = make(What::condition, line);
    n->kids.push_back(logic_or());
    n->kids.push_back(std::move(value));
    n->kids.push_back(accept("else") ? expression() : nullptr);
    value = std::move(n);
  }
  return value;
}

NodePtr Expressions::two(What what, int line, NodePtr a, NodePtr b, std::string op) const {
  NodePtr n = make(what, line);
  n->text = std::move(op);
  n->kids.push_back(std::move(a));
  n->kids.push_back(std::move(b));
  return n;
}

NodePtr Expressions::logic_or() {
  return chain({"or"}, What::logic_or, [&] { return logic_and(); });
}

NodePtr Expressions::logic_and() {
  return chain({"and"}, What::logic_and, [&] { return logic_not(); });
}

NodePtr Expressions::logic_not() {
  Deeper deeper(*this);
  const int line = peek().line;
  if (!accept("not")) return compare();
  NodePtr n = make(What::logic_not, line);
  n->kids.push_back(logic_not());
  return n;
}

NodePtr Expressions::compare() {
  const int line = peek().line;
  NodePtr first = sum();
  NodePtr n;
  for (;;) {
    std::string op;
    for (const char* o : {"==", "!=", "<", "<=", ">", ">="})
      if (peek().op_is(o)) op = o;
    if (peek().is("in")) op = "in";
    if (peek().is("not") && peek(1).is("in")) {
      op = "not in";
      next();
    }
    if (op.empty()) break;
    next();
    if (!n) {
      n = make(What::compare, line);
      n->kids.push_back(std::move(first));
    }
    n->params.push_back(op);
    n->kids.push_back(sum());
  }
  return n ? std::move(n) : std::move(first);
}

NodePtr Expressions::sum() {
  return chain({"+", "-"}, What::binary, [&] { return chain({"~"}, What::binary, [&] { return product(); }); });
}

NodePtr Expressions::product() {
  return chain({"*", "/", "//", "%"}, What::binary,
               [&] { return chain({"**"}, What::binary, [&] { return unary(true); }); });
}

NodePtr Expressions::unary(bool with_filters) {
  Deeper deeper(*this);
  const Token& t = peek();
  NodePtr n;
  if (t.op_is("-") || t.op_is("+")) {
    next();
    n = make(What::unary, t.line);
    n->text = t.text;
    n->kids.push_back(unary(false));
  } else {
    n = primary();
  }
  n = postfix(std::move(n));
  return with_filters ? filters(std::move(n)) : std::move(n);
}

NodePtr Expressions::primary() {
  const Token& t = next();
  switch (t.kind) {
    case Token::name: {
      if (t.text == "true" || t.text == "True") return constant(true, t.line);
      if (t.text == "false" || t.text == "False") return constant(false, t.line);
      if (t.text == "none" || t.text == "None") return constant(None{}, t.line);
      NodePtr n = make(What::name, t.line);
      n->text = t.text;
      return n;
    }
    case Token::string: {
      std::string text = t.text;
      while (peek().kind == Token::string) text += next().text;
      return constant(Text(text), t.line);
    }
    case Token::integer: {
      int64_t value = 0;
      if (std::from_chars(t.text.data(), t.text.data() + t.text.size(), value).ec != std::errc{})
        fail_at(t.line, "the number " + t.text + " is too large");
      return constant(value, t.line);
    }
    case Token::real:
      return constant(std::strtod(t.text.c_str(), nullptr), t.line);
    case Token::op:
      if (t.text == "(") {
        if (accept_op(")")) return make(What::tuple, t.line);
        NodePtr n = tuple();
        expect(")");
        return n;
      }
      if (t.text == "[") {
        NodePtr n = make(What::list, t.line);
        while (!peek().op_is("]")) {
          if (!n->kids.empty()) expect(",");
          if (peek().op_is("]")) break;
          n->kids.push_back(expression());
        }
        expect("]");
        return n;
      }
      if (t.text == "{") {
        NodePtr n = make(What::dict, t.line);
        while (!peek().op_is("}")) {
          if (!n->kids.empty()) expect(",");
          if (peek().op_is("}")) break;
          n->kids.push_back(expression());
          expect(":");
          n->kids.push_back(expression());
        }
        expect("}");
        return n;
      }
      [[fallthrough]];
    default:
      --at_;
      error("expected an expression, got " + shown());
  }
}

// A chain of accesses, calls and filters makes a tree as deep as it is long.
void Expressions::longer(int64_t& length) {
  if (++length > depth_) error("a chain of more than " + std::to_string(depth_) + " accesses, calls or filters");
}

NodePtr Expressions::postfix(NodePtr n) {
  for (int64_t length = 0;; longer(length)) {
    const int line = peek().line;
    if (accept_op(".")) {
      if (peek().kind == Token::integer) {
        n = two(What::item, line, std::move(n), constant(std::strtoll(next().text.c_str(), nullptr, 10), line));
        continue;
      }
      NodePtr a = make(What::attribute, line);
      a->text = identifier();
      a->kids.push_back(std::move(n));
      n = std::move(a);
    } else if (accept_op("[")) {
      n = subscript(std::move(n), line);
    } else if (peek().op_is("(")) {
      NodePtr c = make(What::call, line);
      c->kids.push_back(std::move(n));
      arguments(*c);
      n = std::move(c);
    } else {
      return n;
    }
  }
}

NodePtr Expressions::subscript(NodePtr of, int line) {
  const auto bound = [&]() -> NodePtr { return peek().op_is(":") || peek().op_is("]") ? nullptr : expression(); };
  NodePtr first = bound();
  if (peek().op_is(":")) {
    NodePtr n = make(What::slice, line);
    n->kids.push_back(std::move(of));
    n->kids.push_back(std::move(first));
    next();
    n->kids.push_back(bound());
    n->kids.push_back(accept_op(":") ? bound() : nullptr);
    expect("]");
    return n;
  }
  if (!first) error("expected an index, got " + shown());
  if (peek().op_is(",")) {
    NodePtr items = make(What::tuple, line);
    items->kids.push_back(std::move(first));
    while (accept_op(",") && !peek().op_is("]")) items->kids.push_back(expression());
    first = std::move(items);
  }
  expect("]");
  return two(What::item, line, std::move(of), std::move(first));
}

void Expressions::arguments(Node& n) {
  expect("(");
  bool first = true, named = false;
  while (!peek().op_is(")")) {
    if (!first) expect(",");
    if (peek().op_is(")")) break;
    first = false;
    if (accept_op("**")) {
      n.named.emplace_back("**", expression());
      named = true;
    } else if (accept_op("*")) {
      n.named.emplace_back("*", expression());
    } else if (peek().kind == Token::name && peek(1).op_is("=")) {
      const std::string key = identifier();
      next();
      n.named.emplace_back(key, expression());
      named = true;
    } else {
      if (named) error("an argument without a name follows one with");
      n.kids.push_back(expression());
    }
  }
  expect(")");
}

// "| filter" and "is test" behind a value (null within a filter block, whose text it takes).
NodePtr Expressions::filters(NodePtr n, bool begins) {
  for (int64_t length = 0;; longer(length)) {
    const int line = peek().line;
    if (begins || peek().op_is("|")) {
      begins = false;
      next();
      NodePtr f = make(What::filter, line);
      f->text = identifier();
      while (accept_op(".")) f->text += "." + identifier();
      if (!filter_exists(f->text)) fail_at(line, "there is no filter '" + f->text + "'");
      f->kids.push_back(std::move(n));
      if (peek().op_is("(")) arguments(*f);
      n = std::move(f);
    } else if (n && peek().is("is")) {
      next();
      const bool negated = accept("not");
      NodePtr t = make(What::test, line);
      const Token& name = next();
      if (name.kind != Token::name) fail_at(line, "expected a test's name behind 'is'");
      t->text = name.text;
      if (!test_exists(t->text)) fail_at(line, "there is no test '" + t->text + "'");
      t->kids.push_back(std::move(n));
      const Token& a = peek();
      const bool word = a.kind == Token::name && !a.is("else") && !a.is("or") && !a.is("and") && !a.is("is") &&
                        !a.is("if") && !a.is("not") && !a.is("in") && !a.is("recursive");
      if (a.op_is("(")) {
        arguments(*t);
      } else if (word || a.kind == Token::string || a.kind == Token::integer || a.kind == Token::real || a.op_is("[") ||
                 a.op_is("{")) {
        t->kids.push_back(postfix(primary()));
      }
      if (negated) {
        NodePtr no = make(What::logic_not, line);
        no->kids.push_back(std::move(t));
        t = std::move(no);
      }
      n = std::move(t);
    } else if (n && peek().op_is("(")) {
      n = postfix(std::move(n));
    } else {
      return n;
    }
  }
}

}  // namespace strata::text::jinja
