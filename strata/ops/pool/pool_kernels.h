#pragma once
// Pooling and resizing kernels on raw planes. Every one is a window for each output index of each dimension.

#include <cstdint>
#include <vector>

#include "strata/core/dtype.h"

namespace strata::cpu {

/// The inputs behind each output index of one dimension: start, start + step, .. (count of them, all inside), with
/// their weights one output after the other.
struct Taps {
  int64_t inputs = 1;
  int64_t step = 1;
  std::vector<int64_t> start, count;
  std::vector<double> weight;

  int64_t outputs() const { return static_cast<int64_t>(start.size()); }
  void add(int64_t first, std::initializer_list<double> weights) {
    start.push_back(first);
    count.push_back(static_cast<int64_t>(weights.size()));
    weight.insert(weight.end(), weights);
  }
  void add(int64_t first, int64_t n, double each) {
    start.push_back(first);
    count.push_back(n);
    weight.insert(weight.end(), static_cast<size_t>(n), each);
  }
};

/// y[p, i, j] = sum of h's and w's weights times x over the windows, for each plane p. Floating dtypes.
void resample(const Taps& h, const Taps& w, int64_t planes, DType t, const void* x, void* y);
/// The transpose: each y is added to its inputs in x, times the weights.
void resample_transposed(const Taps& h, const Taps& w, int64_t planes, DType t, const void* y, void* x);
/// Largest element of each window and its position in the plane, -1 for an empty window (whose value is -inf).
void window_max(const Taps& h, const Taps& w, int64_t planes, DType t, const void* x, void* y, int64_t* positions);
/// x[p, positions[p, i]] += y[p, i] into zeros; positions outside [0, in) are skipped.
void plane_scatter(int64_t planes, int64_t in, int64_t out, DType t, const void* y, const int64_t* positions, void* x);
/// y[p, i] = x[p, positions[p, i]], 0 for positions outside [0, in).
void plane_gather(int64_t planes, int64_t in, int64_t out, DType t, const void* x, const int64_t* positions, void* y);

}  // namespace strata::cpu
