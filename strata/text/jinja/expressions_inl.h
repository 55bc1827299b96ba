#pragma once
// Expressions of templates, from tokens to nodes; parser.cpp has the statements around them.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/text/jinja/ast_inl.h"
#include "strata/text/jinja/lexer_inl.h"

namespace strata::text::jinja {

class Expressions {
 protected:
  Expressions(std::string_view source, int64_t depth) : tokens_(tokens(source)), depth_(depth) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool accept(std::string_view text) {
    if (!peek().is(text)) return false;
    next();
    return true;
  }
  bool accept_op(std::string_view text) {
    if (!peek().op_is(text)) return false;
    next();
    return true;
  }
  [[noreturn]] void error(const std::string& message) const { fail_at(peek().line, message); }
  std::string shown() const {
    switch (peek().kind) {
      case Token::end:
        return "the template's end";
      case Token::block_end:
        return "'%}'";
      case Token::output_end:
        return "'}}'";
      default:
        return "'" + peek().text + "'";
    }
  }
  void expect(std::string_view text) {
    if (!accept(text)) error("expected '" + std::string(text) + "', got " + shown());
  }
  void close_block() {
    if (peek().kind != Token::block_end) error("expected '%}', got " + shown());
    next();
  }
  std::string identifier() {
    if (peek().kind != Token::name) error("expected a name, got " + shown());
    return next().text;
  }
  NodePtr make(What what, int line) const {
    auto n = std::make_unique<Node>();
    n->what = what;
    n->line = line;
    return n;
  }
  struct Deeper {
    Expressions& p;
    explicit Deeper(Expressions& parser) : p(parser) {
      if (++p.nested_ > p.depth_) p.error("nested deeper than " + std::to_string(p.depth_));
    }
    ~Deeper() { --p.nested_; }
  };
  NodePtr constant(Value v, int line) const {
    NodePtr n = make(What::constant, line);
    n->value = std::move(v);
    return n;
  }

  // In the order of Jinja's grammar.
  NodePtr tuple(bool conditions = true);
  NodePtr expression();
  NodePtr two(What what, int line, NodePtr a, NodePtr b, std::string op = {}) const;
  template <class Operand>
  NodePtr chain(std::initializer_list<const char*> ops, What what, Operand operand);
  NodePtr logic_or();
  NodePtr logic_and();
  NodePtr logic_not();
  NodePtr compare();
  NodePtr sum();
  NodePtr product();
  NodePtr unary(bool with_filters);
  NodePtr primary();
  void longer(int64_t& length);
  NodePtr postfix(NodePtr n);
  NodePtr subscript(NodePtr of, int line);
  void arguments(Node& n);
  NodePtr filters(NodePtr n, bool begins = false);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t depth_, nested_ = 0;
};

}  // namespace strata::text::jinja
