#pragma once
// Running a template.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/text/jinja/ast_inl.h"

namespace strata::text::jinja {

/// Names of a block, a loop's turn or a macro's call; what is not here is looked for in `outer`.
struct Scope {
  std::map<std::string, Value> names;
  std::shared_ptr<Scope> outer;
};

/// Counts calls within calls, whatever leaves them.
struct Deeper {
  int64_t& depth;
  Deeper(int64_t& d, int64_t most) : depth(d) {
    if (++depth > most) {
      --depth;
      fail("calls nested deeper than " + std::to_string(most));
    }
  }
  ~Deeper() { --depth; }
};

class Renderer {
 public:
  Renderer(const Options& options, std::shared_ptr<Scope> globals);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Text run(const Node& root);

  Value eval(const Node& n);
  /// Runs statements; their output.
  Text capture(const Node& body, const std::shared_ptr<Scope>& scope);
  /// One step, and one more for each 64 of `bytes`; checks a text that grew to them.
  void pay(size_t bytes = 0);
  Value call(const Value& callee, Arguments& args);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value filter(const std::string& name, const Value& value, Arguments& args);
  bool test(const std::string& name, const Value& value, Arguments& args);
  /// What a loop over it sees. Throws for what cannot be looped over.
  std::vector<Value> items(const Value& v);
  bool contains(const Value& of, const Value& what);
  Value binary(const std::string& op, const Value& a, const Value& b);
  bool compare(const std::string& op, const Value& a, const Value& b);

  const Options& options;
  int line = 0;

 private:
  friend struct Macro;
  friend struct LoopObject;
  enum class Flow { on, breaks, continues };
  Flow exec(const Node& n, Text& out);
  Flow loop(const Node& n, const Value& over, Text& out, int64_t depth);
  void assign(const Node& target, const Value& value);
  Arguments arguments(const Node& n, size_t from);
  Value slice(const Value& of, const Node& n);
  Value lookup(const std::string& name);
  void emit(Text& out, const Text& text);
  void remember(const Value& value);

  std::shared_ptr<Scope> scope_;
  std::vector<std::weak_ptr<Scope>> holders_;  // scopes with objects, which may hold them in turn
  int64_t steps_ = 0, depth_ = 0, nested_ = 0;
  bool generating_ = false;
};

/// A function of a few lines.
struct Native final : Object {
  using Fn = std::function<Value(Renderer&, Arguments&)>;
  Native(std::string n, Fn f) : name(std::move(n)), fn(std::move(f)) {}
  std::string kind() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Renderer& r, Arguments& args) override { return fn(r, args); }
  std::string name;
  Fn fn;
};
inline Value native(std::string name, Native::Fn fn) {
  return std::shared_ptr<Object>(std::make_shared<Native>(std::move(name), std::move(fn)));
}

/// Takes arguments one after the other, by place or name, and complains of what is left.
class Take {
 public:
  Take(std::string what, Arguments& args) : what_(std::move(what)), args_(args) {}
  /// Null where it was not given.
  const Value* get(const char* name);
  const Value& need(const char* name);
  int64_t integer(const char* name, int64_t otherwise);
  bool flag(const char* name, bool otherwise);
  const Text* text(const char* name);
  std::string text(const char* name, std::string otherwise);
  /// Throws for arguments that nobody took.
  void done();

 private:
  std::string what_;
  Arguments& args_;
  size_t place_ = 0;
  std::vector<std::string> taken_;
};

int64_t as_integer(const Value& v, const std::string& what);
const Text& as_text(const Value& v, const std::string& what);
/// A method of a text, list or dict; undefined where there is none.
Value method(const Value& of, const std::string& name);
/// raise_exception, strftime_now, namespace, range, dict, lipsum's absence, cycler, joiner.
void add_globals(Scope& scope);
Text upper(const Text& t);
Text lower(const Text& t);
Text capitalize(const Text& t);
/// Parts between `separator`s; white space where it is null.
std::vector<Value> split(const Text& t, const Text* separator, int64_t most, bool from_right);
Text replace(const Text& t, const Text& from, const Text& to, int64_t most);
Text join(Renderer& r, const std::vector<Value>& items, const Text& between);

}  // namespace strata::text::jinja
