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

/// Whether `code` names it: as a word, and for functions as a call.
bool mentions(std::string_view code, const Symbol& symbol);

}  // namespace strata::docs
