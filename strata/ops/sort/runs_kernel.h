#pragma once
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {
/// Runs of n neighbours, i64: where each begins, the number of each element's, and how long each is. The last two are
/// empty where they are not wanted.
struct Runs {
  Tensor starts, numbers, lengths;
};
/// `differs`, [n - 1] of bool: whether element i + 1 is not equal to element i. In a build with CUDA.
Runs runs_cuda(const Tensor& differs, bool numbers_wanted, bool lengths_wanted);

/// Of the elements of x, row-major and on the CPU: the first of each run of equal ones, in x's shape the number of each
/// element's run, and how long each run is. The last two are empty where they are not wanted. NaN equals nothing.
std::tuple<Tensor, Tensor, Tensor> element_runs_cpu(const Tensor& x, bool return_inverse, bool return_counts);
}  // namespace strata
