#include <algorithm>
#include <charconv>
#include <set>

#include "strata/core/error.h"
#include "strata/text/jinja/ast_inl.h"
#include "strata/text/jinja/lexer_inl.h"

namespace strata::text::jinja {
namespace {

class Parser {
 public:
  Parser(std::string_view source, int64_t depth) : tokens_(tokens(source)), depth_(depth) {}

  NodePtr run() {
    NodePtr root = body({});
    if (peek().kind != Token::end) error("unexpected 'end' of a block that is not open");
    return root;
  }

 private:
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
    Parser& p;
    explicit Deeper(Parser& parser) : p(parser) {
      if (++p.nested_ > p.depth_) p.error("nested deeper than " + std::to_string(p.depth_));
    }
    ~Deeper() { --p.nested_; }
  };

  // Statements up to a block of one of these names, of which the name is the next token.
  NodePtr body(const std::set<std::string>& ends) {
    Deeper deeper(*this);
    NodePtr block = make(What::block, peek().line);
    for (;;) {
      const Token& t = peek();
      if (t.kind == Token::end) {
        if (!ends.empty())
          error("the template ends where '" +
                *std::find_if(ends.begin(), ends.end(), [](const auto& e) { return e.starts_with("end"); }) +
                "' is missing");
        return block;
      }
      if (t.kind == Token::data) {
        NodePtr out = make(What::output, t.line);
        out->kids.push_back(constant(Text(t.text), t.line));
        next();
        block->kids.push_back(std::move(out));
      } else if (t.kind == Token::output_begin) {
        next();
        NodePtr out = make(What::output, t.line);
        out->kids.push_back(tuple());
        if (peek().kind != Token::output_end) error("expected '}}', got " + shown());
        next();
        block->kids.push_back(std::move(out));
      } else {
        next();
        if (peek().kind == Token::name && ends.contains(peek().text)) return block;
        block->kids.push_back(statement());
      }
    }
  }

  NodePtr constant(Value v, int line) const {
    NodePtr n = make(What::constant, line);
    n->value = std::move(v);
    return n;
  }

  NodePtr statement() {
    const int line = peek().line;
    const std::string tag = identifier();
    if (tag == "if") return if_chain(line);
    if (tag == "for") return for_loop(line);
    if (tag == "set") return set(line);
    if (tag == "macro") return macro(line);
    if (tag == "call") return call_block(line);
    if (tag == "filter") return filter_block(line);
    if (tag == "with") return with(line);
    if (tag == "generation") {
      NodePtr n = make(What::generation, line);
      close_block();
      n->kids.push_back(body({"endgeneration"}));
      end("endgeneration");
      return n;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(line, "'" + tag + "' outside of a loop");
      close_block();
      return make(tag == "break" ? What::break_loop : What::continue_loop, line);
    }
    for (const char* other : {"include", "import", "from", "extends", "block", "autoescape", "trans", "do", "debug"})
      if (tag == other) fail_at(line, "'{% " + tag + " %}' is not available in chat templates");
    fail_at(line, tag.starts_with("end") || tag == "else" || tag == "elif" ? "'" + tag + "' belongs to no block"
                                                                           : "there is no block '" + tag + "'");
  }
  void end(const char* name) {
    expect(name);
    close_block();
  }

  NodePtr if_chain(int line) {
    NodePtr n = make(What::if_chain, line);
    n->kids.push_back(tuple());
    close_block();
    for (;;) {
      n->kids.push_back(body({"elif", "else", "endif"}));
      if (accept("elif")) {
        n->kids.push_back(tuple());
        close_block();
      } else if (accept("else")) {
        close_block();
        n->kids.push_back(body({"endif"}));
        end("endif");
        return n;
      } else {
        end("endif");
        return n;
      }
    }
  }

  // Names, a tuple of them, or with `attributes` a namespace's member.
  NodePtr target(bool attributes) {
    Deeper deeper(*this);
    const int line = peek().line;
    if (attributes && peek().kind == Token::name && peek(1).op_is(".")) {
      NodePtr n = make(What::attribute, line);
      n->kids.push_back(name());
      next();
      n->text = identifier();
      return n;
    }
    std::vector<NodePtr> items;
    bool is_tuple = false;
    for (;;) {
      if (accept_op("(")) {
        items.push_back(target(false));
        expect(")");
      } else if (peek().kind == Token::name && !peek().is("in")) {
        items.push_back(name());
      } else if (!is_tuple) {
        error("expected a name to assign to, got " + shown());
      }
      if (!accept_op(",")) break;
      is_tuple = true;
      if (peek().kind != Token::name && !peek().op_is("(")) break;
    }
    if (!is_tuple) return std::move(items[0]);
    NodePtr n = make(What::tuple, line);
    n->kids = std::move(items);
    return n;
  }
  NodePtr name() {
    NodePtr n = make(What::name, peek().line);
    n->text = identifier();
    for (const char* reserved :
         {"true", "false", "none", "True", "False", "None", "and", "or", "not", "if", "else", "in", "is"})
      if (n->text == reserved) fail_at(n->line, "'" + n->text + "' cannot be assigned to");
    return n;
  }

  NodePtr for_loop(int line) {
    NodePtr n = make(What::for_loop, line);
    n->kids.push_back(target(false));
    expect("in");
    n->kids.push_back(tuple(false));
    n->kids.push_back(accept("if") ? expression() : nullptr);
    n->flag = accept("recursive");
    close_block();
    ++loops_;
    n->kids.push_back(body({"endfor", "else"}));
    --loops_;
    if (accept("else")) {
      close_block();
      n->kids.push_back(body({"endfor"}));
    } else {
      n->kids.push_back(nullptr);
    }
    end("endfor");
    return n;
  }

  NodePtr set(int line) {
    NodePtr to = target(true);
    if (accept_op("=")) {
      NodePtr n = make(What::set, line);
      n->kids.push_back(std::move(to));
      n->kids.push_back(tuple());
      close_block();
      return n;
    }
    NodePtr n = make(What::set_block, line);
    NodePtr over = filters(nullptr);
    close_block();
    n->kids.push_back(std::move(to));
    n->kids.push_back(body({"endset"}));
    n->kids.push_back(std::move(over));
    end("endset");
    return n;
  }

  void signature(Node& n, std::vector<NodePtr>& defaults) {
    expect("(");
    while (!peek().op_is(")")) {
      if (!n.params.empty()) expect(",");
      if (peek().op_is(")")) break;
      n.params.push_back(name()->text);
      if (accept_op("=")) {
        defaults.push_back(expression());
      } else if (!defaults.empty()) {
        error("a parameter without a default follows one with");
      }
    }
    expect(")");
  }
  NodePtr macro(int line) {
    NodePtr n = make(What::macro, line);
    n->text = name()->text;
    std::vector<NodePtr> defaults;
    signature(*n, defaults);
    close_block();
    const int loops = std::exchange(loops_, 0);
    n->kids.push_back(body({"endmacro"}));
    loops_ = loops;
    expect("endmacro");
    if (peek().kind == Token::name) next();  // its name again
    close_block();
    for (NodePtr& d : defaults) n->kids.push_back(std::move(d));
    return n;
  }
  NodePtr call_block(int line) {
    NodePtr n = make(What::call_block, line);
    std::vector<NodePtr> defaults;
    if (peek().op_is("(")) signature(*n, defaults);
    NodePtr call = expression();
    if (call->what != What::call) fail_at(line, "a call block needs a call");
    close_block();
    n->kids.push_back(std::move(call));
    const int loops = std::exchange(loops_, 0);
    n->kids.push_back(body({"endcall"}));
    loops_ = loops;
    end("endcall");
    for (NodePtr& d : defaults) n->kids.push_back(std::move(d));
    return n;
  }
  NodePtr filter_block(int line) {
    NodePtr n = make(What::filter_block, line);
    --at_;  // reads "filter NAME" as "| NAME"
    NodePtr over = filters(nullptr, true);
    close_block();
    n->kids.push_back(std::move(over));
    n->kids.push_back(body({"endfilter"}));
    end("endfilter");
    return n;
  }
  NodePtr with(int line) {
    NodePtr n = make(What::with, line);
    while (peek().kind != Token::block_end) {
      if (!n->kids.empty()) expect(",");
      n->kids.push_back(target(false));
      expect("=");
      n->kids.push_back(expression());
    }
    close_block();
    n->kids.push_back(body({"endwith"}));
    end("endwith");
    return n;
  }

  // Expressions, in the order of Jinja's grammar.
  NodePtr tuple(bool conditions = true) {
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
  NodePtr expression() {
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
  NodePtr two(What what, int line, NodePtr a, NodePtr b, std::string op = {}) const {
    NodePtr n = make(what, line);
    n->text = std::move(op);
    n->kids.push_back(std::move(a));
    n->kids.push_back(std::move(b));
    return n;
  }
  // Chains of operators make trees as deep as they are long.
  template <class Operand>
  NodePtr chain(std::initializer_list<const char*> ops, What what, Operand operand) {
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
  NodePtr logic_or() {
    return chain({"or"}, What::logic_or, [&] { return logic_and(); });
  }
  NodePtr logic_and() {
    return chain({"and"}, What::logic_and, [&] { return logic_not(); });
  }
  NodePtr logic_not() {
    Deeper deeper(*this);
    const int line = peek().line;
    if (!accept("not")) return compare();
    NodePtr n = make(What::logic_not, line);
    n->kids.push_back(logic_not());
    return n;
  }
  NodePtr compare() {
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
  NodePtr sum() {
    return chain({"+", "-"}, What::binary, [&] { return chain({"~"}, What::binary, [&] { return product(); }); });
  }
  NodePtr product() {
    return chain({"*", "/", "//", "%"}, What::binary,
                 [&] { return chain({"**"}, What::binary, [&] { return unary(true); }); });
  }
  NodePtr unary(bool with_filters) {
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

  NodePtr primary() {
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
  void longer(int64_t& length) {
    if (++length > depth_) error("a chain of more than " + std::to_string(depth_) + " accesses, calls or filters");
  }

  NodePtr postfix(NodePtr n) {
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
  NodePtr subscript(NodePtr of, int line) {
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
  void arguments(Node& n) {
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
  NodePtr filters(NodePtr n, bool begins = false) {
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
        } else if (word || a.kind == Token::string || a.kind == Token::integer || a.kind == Token::real ||
                   a.op_is("[") || a.op_is("{")) {
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t depth_, nested_ = 0;
  int loops_ = 0;
};

}  // namespace

NodePtr parse(std::string_view source, int64_t depth) {
  return Parser(source, depth).run();
}

}  // namespace strata::text::jinja
