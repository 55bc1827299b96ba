#pragma once
// References of the reductions: loops over the elements that each place of the result stands for, in double precision.

#include <optional>
#include <tuple>

#include "strata/ops/naive_inl.h"

namespace strata::by_loops {

using naive::Array;
using Part = std::vector<double>;  // the elements of one place of the result

/// A reduction's reference from a function of the elements.
template <double (*f)(const Part&)>
Tensor reduced(const Tensor& x, const Dims& dims, bool keepdim) {
  return naive::reduced(Array(x), dims, keepdim, f);
}

inline double sum_of(const Part& v) {
  double total = 0;
  for (const double e : v) total += e;
  return total;
}
inline double mean_of(const Part& v) {
  return sum_of(v) / static_cast<double>(v.size());
}
inline double product_of(const Part& v) {
  double product = 1;
  for (const double e : v) product *= e;
  return product;
}
inline double log_sum_exp_of(const Part& v) {
  double largest = -HUGE_VAL, total = 0;
  for (const double e : v) largest = std::max(largest, e);
  for (const double e : v) total += std::exp(e - largest);
  return v.empty() ? -HUGE_VAL : largest + std::log(total);
}
inline double largest_of(const Part& v) {
  return *std::max_element(v.begin(), v.end());
}
inline double smallest_of(const Part& v) {
  return *std::min_element(v.begin(), v.end());
}
inline double count_of_nonzero(const Part& v) {
  return static_cast<double>(v.size()) - static_cast<double>(std::count(v.begin(), v.end(), 0.0));
}
inline double any_of(const Part& v) {
  return count_of_nonzero(v) > 0;
}
inline double all_of(const Part& v) {
  return std::count(v.begin(), v.end(), 0.0) == 0;
}

inline Tensor variance(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return naive::reduced(Array(x), dims, keepdim, [&](const Part& v) {
    double squares = 0;
    for (const double e : v) squares += (e - mean_of(v)) * (e - mean_of(v));
    return squares / std::max(0.0, static_cast<double>(v.size()) - correction);
  });
}
inline Tensor deviation(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  Array y(variance(x, dims, correction, keepdim));
  for (int64_t i = 0; i < y.size(); ++i) y.flat(i) = std::sqrt(y.flat(i));
  return y;
}
inline Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  return naive::reduced(Array(x), dims, keepdim, [&](Part v) {
    for (double& e : v) e = std::abs(e);
    if (p == HUGE_VAL) return largest_of(v);
    if (p == -HUGE_VAL) return smallest_of(v);
    if (p == 0) return count_of_nonzero(v);
    for (double& e : v) e = std::pow(e, p);
    return std::pow(sum_of(v), 1 / p);
  });
}

/// Where the first of the largest (or smallest) elements is.
template <bool Largest>
int64_t first_extreme(const Part& v) {
  size_t at = 0;
  for (size_t i = 1; i < v.size(); ++i)
    if (Largest ? v[i] > v[at] : v[i] < v[at]) at = i;
  return static_cast<int64_t>(at);
}
template <bool Largest>
std::tuple<Tensor, Tensor> extreme_at(const Tensor& x, int64_t dim, bool keepdim) {
  const Dims dims{dim};
  return {naive::reduced(Array(x), dims, keepdim, Largest ? largest_of : smallest_of),
          Tensor(naive::reduced(Array(x), dims, keepdim,
                                [](const Part& v) { return static_cast<double>(first_extreme<Largest>(v)); }))};
}
template <bool Largest>
Tensor position(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return naive::reduced(Array(x), dim ? Dims{*dim} : Dims(), keepdim,
                        [](const Part& v) { return static_cast<double>(first_extreme<Largest>(v)); });
}

/// f(row) written along dim in the place of each row.
template <class F>
Tensor scanned(const Tensor& x, int64_t dim, F f) {
  const Array v(x);
  Array y(x.shape());
  dim = naive::from_front(dim, v.dim());
  naive::rows(v, dim, [&](const Part& row, const Dims& place) {
    const Part result = f(row);
    for (size_t i = 0; i < row.size(); ++i) y[naive::moved(place, dim, static_cast<int64_t>(i))] = result[i];
  });
  return y;
}
inline Tensor running_sum(const Tensor& x, int64_t dim, bool reverse) {
  return scanned(x, dim, [&](Part row) {
    if (reverse) std::reverse(row.begin(), row.end());
    double total = 0;
    for (double& e : row) e = total += e;
    if (reverse) std::reverse(row.begin(), row.end());
    return row;
  });
}
inline Tensor running_product(const Tensor& x, int64_t dim) {
  return scanned(x, dim, [](Part row) {
    double product = 1;
    for (double& e : row) e = product *= e;
    return row;
  });
}
/// The largest (smallest) element up to each, and where it last occurs.
template <bool Largest>
std::tuple<Tensor, Tensor> running_extreme(const Tensor& x, int64_t dim) {
  const auto last = [](const Part& row, size_t end) {
    size_t at = 0;
    for (size_t i = 1; i <= end; ++i)
      if (Largest ? row[i] >= row[at] : row[i] <= row[at]) at = i;
    return at;
  };
  const auto each = [&](bool value) {
    return scanned(x, dim, [&](const Part& row) {
      Part y;
      for (size_t i = 0; i < row.size(); ++i)
        y.push_back(value ? row[last(row, i)] : static_cast<double>(last(row, i)));
      return y;
    });
  };
  return {each(true), each(false)};
}

inline Tensor picked(const Tensor& x, const Tensor& indices, const Shape&, int64_t dim) {
  const Array v(x), at(indices);
  dim = naive::from_front(dim, v.dim());
  return naive::made(at.shape(), [&](const Dims& p) { return v[naive::moved(p, dim, static_cast<int64_t>(at[p]))]; });
}
inline Tensor put(const Tensor& g, const Tensor& indices, const Shape& shape, int64_t dim) {
  const Array v(g), at(indices);
  Array y(shape);
  dim = naive::from_front(dim, shape.size());
  naive::each(v.shape(), [&](const Dims& p) { y[naive::moved(p, dim, static_cast<int64_t>(at[p]))] += v[p]; });
  return y;
}

}  // namespace strata::by_loops
