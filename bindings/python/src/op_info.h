#pragma once
// An op record as Python calls it, and the arguments of a call: what ops.cpp and op_arguments.cpp share.

#include <array>
#include <cstddef>
#include <new>
#include <span>

#include "py.h"
#include "strata/core/op.h"

namespace strata::python {

inline constexpr size_t kMaxArgs = 32;

struct Arg {
  SchemaType type;
  bool has_default;
  PyObject* name;  // interned
  std::vector<const char*> aliases;
};

using Unary = Op<Tensor(const Tensor&)>;
using Binary = Op<Tensor(const Tensor&, const Tensor&)>;
using BinaryScaled = Op<Tensor(const Tensor&, const Tensor&, Scalar)>;

/// An op of two tensors where the second one is a number, which is then no tensor.
struct NumberForms {
  std::string_view op;
  Tensor (*fresh)(const Tensor& x, Scalar number);
  Tensor& (*inplace)(Tensor& x, Scalar number);
};

/// A record, its schema read once; it lives as long as the program.
struct OpInfo {
  const OpBase* op;
  std::vector<Arg> args;
  size_t required = 0;                                     // arguments up to the last that has no default
  PyObject *result_type = nullptr, *shown_type = nullptr;  // named tuples for several results: all, those of callers
  const Unary* unary = nullptr;
  const Binary* binary = nullptr;
  const BinaryScaled* scaled = nullptr;
  const NumberForms* with_number = nullptr;
  std::string name, doc;
};

// Slots for the arguments of one call, made and ended by hand: most calls use two or three of them.
class Values {
 public:
  Values() = default;
  Values(const Values&) = delete;
  ~Values() {
    for (size_t i = 0; i < size_; ++i) at(i).~Value();
  }
  void resize(size_t n) {
    for (; size_ < n; ++size_) new (bytes_ + size_ * sizeof(Value)) Value();
  }
  Value& at(size_t i) { return *std::launder(reinterpret_cast<Value*>(bytes_ + i * sizeof(Value))); }
  std::span<Value> all() { return {&at(0), size_}; }

 private:
  alignas(Value) std::byte bytes_[kMaxArgs * sizeof(Value)];
  size_t size_ = 0;
};

/// The arguments as OpInfo keeps them, with the names that go for each of the schema's everywhere.
std::vector<Arg> read_arguments(const OpBase& op);
/// The place of an argument by its name, or size_t(-1): strata/_signatures.py may know the name.
size_t find_keyword(const OpInfo& info, PyObject* name);
/// Arguments in the schema's order; those that are not given stay None. False where a name is none of the schema's.
/// `heavy` becomes true where a tensor is large: see is_heavy(). Throws where Python's error is set.
bool parse(const OpInfo& info, PyObject* const* given, size_t count, PyObject* names, Values& values, bool& heavy);

}  // namespace strata::python
