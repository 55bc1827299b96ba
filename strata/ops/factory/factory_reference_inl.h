#pragma once
// References of the tensors that are made from numbers: each element by its formula.

#include "strata/core/device.h"
#include "strata/core/scalar.h"
#include "strata/ops/naive_inl.h"

namespace strata::by_loops {

using naive::Array;

inline Tensor filled(const Shape& shape, Scalar value, DType, Device) {
  return Array(shape, value.to_double());
}

/// Counting by hand: start, start + step, ... before end; an integer dtype counts from the truncated start by the
/// truncated step, as often.
inline Tensor counted(Scalar start, Scalar end, Scalar step, DType dtype, Device) {
  const double from = start.to_double(), to = end.to_double(), by = step.to_double();
  const bool whole = !is_floating(dtype);
  std::vector<double> all;
  for (double i = 0; by > 0 ? from + i * by < to : from + i * by > to; ++i)
    all.push_back(whole ? std::trunc(from) + i * std::trunc(by) : from + i * by);
  return Array(Shape{static_cast<int64_t>(all.size())}, all);
}

/// f of numbers at equal distances. What an integer dtype makes of them is its conversion's affair: truncated, and for
/// bool whether they are 0.
template <class F>
Tensor spaced(double start, double end, int64_t steps, F f) {
  return naive::made(Shape{steps}, [&](const Dims& p) {
    const double distances = static_cast<double>(std::max<int64_t>(1, steps - 1));
    return f(start + (end - start) * static_cast<double>(p[0]) / distances);
  });
}
/// An end, which integer dtypes truncate.
inline double end_for(Scalar value, DType dtype) {
  return is_floating(dtype) ? value.to_double() : std::trunc(value.to_double());
}
inline Tensor evenly_spaced(Scalar start, Scalar end, int64_t steps, DType dtype, Device) {
  return spaced(end_for(start, dtype), end_for(end, dtype), steps, [](double v) { return v; });
}
inline Tensor powers_evenly_spaced(Scalar start, Scalar end, int64_t steps, double base, DType dtype, Device) {
  const DType ends = steps == 1 ? DType::f64 : dtype;  // a single value's exponent is not truncated
  return spaced(end_for(start, ends), end_for(end, ends), steps, [&](double v) { return std::pow(base, v); });
}

inline Tensor identity(int64_t n, int64_t m, DType, Device) {
  return naive::made(Shape{n, m}, [](const Dims& p) { return p[0] == p[1] ? 1.0 : 0.0; });
}

inline Tensor places_of_triangle(bool lower, int64_t rows, int64_t cols, int64_t offset, Device) {
  std::vector<double> row, col;
  naive::each(Shape{rows, cols}, [&](const Dims& p) {
    if (lower ? p[1] - p[0] > offset : p[1] - p[0] < offset) return;
    row.push_back(static_cast<double>(p[0]));
    col.push_back(static_cast<double>(p[1]));
  });
  const auto n = static_cast<int64_t>(row.size());
  row.insert(row.end(), col.begin(), col.end());
  return Array(Shape{2, n}, row);
}

}  // namespace strata::by_loops
