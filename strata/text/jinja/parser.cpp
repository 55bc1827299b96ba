#include <set>

#include "strata/core/error.h"
#include "strata/text/jinja/expressions_inl.h"

namespace strata::text::jinja {
namespace {

class Parser : Expressions {
 public:
  Parser(std::string_view source, int64_t depth) : Expressions(source, depth) {}

  NodePtr run() {
    NodePtr root = body({});
    if (peek().kind != Token::end) error("unexpected 'end' of a block that is not open");
    return root;
  }

 private:
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

  int loops_ = 0;
};

}  // namespace

NodePtr parse(std::string_view source, int64_t depth) {
  return Parser(source, depth).run();
}

}  // namespace strata::text::jinja
