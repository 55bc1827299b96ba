#pragma once
// Reading results and comparing them with what they should be. Written without the ops that it is used to check.

#include <span>
#include <string>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/core/value.h"

namespace strata::lab {

/// The elements in row-major order, whatever the strides. i64 beyond 2^53 loses digits: compare bytes() for those.
std::vector<double> values(const Tensor& t);
/// The elements' bytes in row-major order.
std::string bytes(const Tensor& t);
/// The same of several; nothing for an undefined one.
std::vector<std::string> bytes(const std::vector<Tensor>& tensors);
/// The distance from 1 to the next number: 2^-23 for f32. 0 for integers and bool.
double epsilon(DType t);
/// The largest finite number of a floating dtype.
double largest(DType t);

/// |got - want| <= absolute + relative * |want| is right.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};
/// The element that is furthest off, in units of its bound.
struct Difference {
  double ratio = 0;  ///< error over bound: at most 1 is right; infinite where one side is NaN
  int64_t index = -1;
  double got = 0, want = 0, bound = 0;
};
/// Compares element by element. A number too large for got's dtype may have become infinite.
Difference compare(const Tensor& got, const Tensor& want, Tolerance tolerance);

/// "0.25", "[3, 5] f32", "[2, 3]", "None": an argument as text.
std::string text_of(const Value& value);
/// Arguments as text, joined by commas.
std::string text_of(std::span<const Value> args);

/// Calls f on every tensor among the values, lists included.
template <class F>
void visit(std::span<const Value> all, F&& f) {
  for (const Value& v : all) {
    if (const Tensor* t = std::get_if<Tensor>(&v)) {
      f(*t);
    } else if (const TensorList* list = std::get_if<TensorList>(&v)) {
      for (const Tensor& t : *list) f(t);
    }
  }
}
/// The values with every defined tensor t replaced by f(t).
template <class F>
std::vector<Value> map(std::span<const Value> all, F&& f) {
  std::vector<Value> r(all.begin(), all.end());
  const auto replace = [&](Tensor& t) {
    if (t.defined()) t = f(t);
  };
  for (Value& v : r) {
    if (Tensor* t = std::get_if<Tensor>(&v)) {
      replace(*t);
    } else if (TensorList* list = std::get_if<TensorList>(&v)) {
      for (Tensor& t : *list) replace(t);
    }
  }
  return r;
}
/// The tensors among the values, lists flattened; undefined ones keep their place.
std::vector<Tensor> tensors_of(std::span<const Value> all);

/// @name Equal tensors in other layouts, each with its own storage. Unused bytes of the storage are 0xff.
/// @{
Tensor dense_copy(const Tensor& t);
/// Converted, row-major.
Tensor converted(const Tensor& t, DType dtype);
/// Stored with its dimensions in reverse order.
Tensor reversed_storage(const Tensor& t);
/// Every second element of a larger tensor, not starting at its first.
Tensor every_second(const Tensor& t);
/// @}

/// A tensor of another shape whose elements repeat those of t: what was a valid index or a positive number stays one.
/// On a card the device itself repeats them: large tensors would take longer to cross the bus than to be used.
Tensor tiled(const Tensor& t, const Shape& shape, Device device = Device::cpu());
/// Arguments of the same ranks of which the largest has about `elements` elements. Sizes that arguments share grow
/// together, also in shapes given as numbers; contents are tiled. Not every op takes the result.
std::vector<Value> enlarged(std::span<const Value> args, double elements, Device device = Device::cpu());
/// What the op's results take in memory, from a dry run: 0 where that cannot tell, infinite where it refuses.
double result_bytes(const OpBase& op, std::span<const Value> args);
/// What a call may take at most, by its record's cost and a dry run.
struct CallLimit {
  double flops, bytes, result_bytes;
};
/// enlarged(), with half as many elements again and again until the call keeps within `limit`: results and work may
/// grow as powers of the arguments. Arguments that the dry run refuses come back as they are.
std::vector<Value> enlarged_within(const OpBase& op, std::span<const Value> args, double elements,
                                   const CallLimit& limit);

}  // namespace strata::lab
