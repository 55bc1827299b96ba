#pragma once
// What goes along a line besides sums, products and extremes: how two stretches of it are combined. On the CPU and in
// CUDA kernels.

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define STRATA_RUNNING __host__ __device__ __forceinline__
#else
#define STRATA_RUNNING inline
#endif

namespace strata {

/// A stretch of y[k] = a[k] y[k - 1] + b[k]: from the y before it to its last, y -> factor y + term.
struct LinearSteps {
  double factor = 1, term = 0;
};
/// What `earlier` and then `later` do. A term of 0 stays 0, also times what left the range of numbers.
STRATA_RUNNING LinearSteps then(const LinearSteps& earlier, const LinearSteps& later) {
  return {earlier.factor * later.factor, earlier.term == 0 ? later.term : later.factor * earlier.term + later.term};
}

/// A stretch of a line that is in runs: what its last run adds up to there, and whether that run goes through all of
/// it, so that what comes before it may belong to it.
template <class C>
struct RunSum {
  C sum = 0;
  int32_t joins = 1;
};
template <class C>
STRATA_RUNNING RunSum<C> then(const RunSum<C>& earlier, const RunSum<C>& later) {
  return {later.joins ? earlier.sum + later.sum : later.sum, earlier.joins & later.joins};
}

/// A sum of exponentials, as exp(most) times sum. Of nothing it is 0.
template <class C>
struct ExpSum {
  C most = -HUGE_VALF, sum = 0;
};
template <class C>
STRATA_RUNNING ExpSum<C> exp_of(C x) {
  return x == x ? ExpSum<C>{x, C(1)} : ExpSum<C>{-HUGE_VALF, x};
}
template <class C>
STRATA_RUNNING ExpSum<C> then(const ExpSum<C>& a, const ExpSum<C>& b) {
  const C most = a.most > b.most ? a.most : b.most;
  // Equal ones, infinite ones among them, need no quotient.
  const C left = a.most == most ? a.sum : a.sum * std::exp(a.most - most);
  const C right = b.most == most ? b.sum : b.sum * std::exp(b.most - most);
  return {most, left + right};
}
template <class C>
STRATA_RUNNING C log_of(const ExpSum<C>& s) {
  return std::log(s.sum) + s.most;
}

}  // namespace strata

#undef STRATA_RUNNING
