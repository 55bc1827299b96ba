#pragma once
// The names that a header offers, found by reading it: enough C++ for declarations as this project writes them.

#include <string>
#include <string_view>
#include <vector>

namespace strata::docs {

struct Symbol {
  enum class Kind { type, function, method, constant };
  Kind kind;
  std::string name;
  std::string scope;  ///< "strata::nn::Module"
  int line = 0;
  /// A comment stands before it or on its lines, or it belongs to a row of functions without blank lines between them
  /// whose first one has a comment.
  bool commented = false;
  bool accessor = false;  ///< a const method without arguments: what it returns is its name
};

/// Public symbols in the order of the text. Left out: what is in a namespace `detail`, private and protected members,
/// data members, constructors, operators, overrides, specialisations and forward declarations.
std::vector<Symbol> symbols(std::string_view header);

/// What a header offers, as its reader sees it.
struct Declaration {
  std::string scope;    ///< "strata::nn"
  std::string name;     ///< of a type; empty for a function, a constant or an alias
  std::string comment;  ///< the lines before it, without their slashes
  std::string code;     ///< as it stands there, without bodies and what is not public; with the members' comments
};

/// The public declarations at namespace scope, in the order of the text; a class is one, with all its members.
std::vector<Declaration> declarations(std::string_view header);
/// The comment that a header begins with, without its slashes.
std::string head_comment(std::string_view header);

/// Whether `code` names it: as a word, and for functions as a call.
bool mentions(std::string_view code, const Symbol& symbol);

}  // namespace strata::docs
