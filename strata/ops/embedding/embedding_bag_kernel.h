#pragma once
// Kernels of embedding bags on raw memory; everything is contiguous.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata {

/// Bag b holds the positions offsets[b] to offsets[b + 1] - 1 of n indices into a table [rows, width]. R below is f32,
/// f64 for f64.
struct BagCall {
  DType dtype = DType::f32;
  int64_t n = 0, bags = 0, rows = 0, width = 0;
  int64_t padding = -1;                                  // positions with this index count nothing
  bool mean = false;                                     // sums over the number of positions that count
  const int64_t *indices = nullptr, *offsets = nullptr;  // [n], [bags + 1]
  const void* weight = nullptr;                          // [rows, width]
  const void* scale = nullptr;                           // dtype [n], a factor of each position, or null
  void* y = nullptr;                                     // [bags, width]
  int64_t* best = nullptr;                               // max: the row of each element, -1 in an empty bag
  // Backward only.
  const void* grad_y = nullptr;  // [bags, width]
  void* grad_weight = nullptr;   // [rows, width]
};
/// Throws ValueError for offsets that do not rise from 0 to n, IndexError for an index outside the table.
void bag_sum_cpu(const BagCall& c);
void bag_max_cpu(const BagCall& c);
/// grad_weight[v] = the scaled rows of grad_y of the positions that hold v, in their order.
void bag_backward_cpu(const BagCall& c);

/// The same on the current stream of a CUDA device. Positions that offsets leave out count nothing there.
void bag_sum_cuda(const BagCall& c);
void bag_max_cuda(const BagCall& c);
/// `indices` is the tensor of c.indices.
void bag_backward_cuda(const BagCall& c, const Tensor& indices);

}  // namespace strata
