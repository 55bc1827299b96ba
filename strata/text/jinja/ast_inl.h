#pragma once
// What a template's source says.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/text/jinja/value_inl.h"

namespace strata::text::jinja {

enum class What {
  // statements
  block,
  output,
  for_loop,
  if_chain,
  set,
  set_block,
  macro,
  call_block,
  filter_block,
  generation,
  break_loop,
  continue_loop,
  with,
  // expressions
  constant,
  name,
  list,
  tuple,
  dict,
  unary,
  binary,
  compare,
  logic_and,
  logic_or,
  logic_not,
  condition,
  attribute,
  item,
  slice,
  call,
  filter,
  test
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// One piece; which fields have a meaning depends on `what`:
///   output      kids: expressions
///   for_loop    kids[0] target, [1] iterable, [2] filter or null, [3] body, [4] else or null; flag: recursive
///   if_chain    kids: condition, body, condition, body, .., [else]
///   set         kids[0] target (name, tuple or attribute), [1] value;  set_block: [1] body, [2] filter over it or null
///   macro       text; params; kids: [0] body, then defaults of the last parameters
///   call_block  kids[0] call, [1] body; params, kids[2..] defaults
///   filter_block kids[0] filter over null, [1] body;  generation: kids[0] body;  with: kids: names, values, .., body
///   attribute   kids[0], text;  item: kids[0], [1];  slice: kids[0] value, [1..3] or null
///   call, filter, test: kids[0] callee or value, then positional arguments; named; text: the filter's or test's name;
///               named "*" and "**" are unpacked
///   compare     kids[0], then operands; params: operators
struct Node {
  What what;
  int line = 0;
  std::string text;
  Value value;
  bool flag = false;
  std::vector<NodePtr> kids;
  std::vector<std::string> params;
  std::vector<std::pair<std::string, NodePtr>> named;
};

/// Throws ValueError with the line.
NodePtr parse(std::string_view source, int64_t depth);

bool filter_exists(const std::string& name);
bool test_exists(const std::string& name);

}  // namespace strata::text::jinja
