#pragma once
// Pooling and resizing kernels on raw planes. Every one is a window for each output index of each dimension.

#include <array>
#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/ops/pool/pool_axis.h"

namespace strata {

namespace pool {
/// Depth, height and width of a plane, all of one kind; those that an input lacks are units.
using Axes = std::array<Axis, 3>;
}  // namespace pool

namespace cpu {
using pool::Axes;
using pool::Axis;

/// y[p, k, i, j] = sum of the three axes' weights times x over the windows, for each plane p. Floating dtypes.
void resample(const Axes& axes, int64_t planes, DType t, const void* x, void* y);
/// The transpose: each y is added to its inputs in x, times the weights.
void resample_transposed(const Axes& axes, int64_t planes, DType t, const void* y, void* x);
/// Largest element of each window and its position in the plane, -1 for an empty window (whose value is -inf); values
/// alone where `positions` is null.
void window_max(const Axes& axes, int64_t planes, DType t, const void* x, void* y, int64_t* positions);
/// x[p, positions[p, i]] += y[p, i] into zeros; positions outside [0, in) are skipped.
void plane_scatter(int64_t planes, int64_t in, int64_t out, DType t, const void* y, const int64_t* positions, void* x);
/// y[p, i] = x[p, positions[p, i]], 0 for positions outside [0, in).
void plane_gather(int64_t planes, int64_t in, int64_t out, DType t, const void* x, const int64_t* positions, void* y);

// The same of images [n, c, h, w] or volumes [n, c, d, h, w] whose channels lie innermost, as do the results'. False,
// with nothing done, where they are so few that planes are faster.
bool resample_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y);
bool resample_transposed_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* y, void* x);
bool window_max_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y,
                     int64_t* positions);
bool plane_scatter_last(int64_t images, int64_t channels, int64_t in, int64_t out, DType t, const void* y,
                        const int64_t* positions, void* x);
}  // namespace cpu

// The same on a CUDA device's memory, on its current stream. plane_scatter adds in the order of i, as the CPU does.
void resample_cuda(const pool::Axes& axes, int64_t planes, DType t, const void* x, void* y);
void resample_transposed_cuda(const pool::Axes& axes, int64_t planes, DType t, const void* y, void* x);
void window_max_cuda(const pool::Axes& axes, int64_t planes, DType t, const void* x, void* y, int64_t* positions);
void plane_scatter_cuda(int64_t planes, int64_t in, int64_t out, DType t, const void* y, const int64_t* positions,
                        void* x);
void plane_gather_cuda(int64_t planes, int64_t in, int64_t out, DType t, const void* x, const int64_t* positions,
                       void* y);

/// plane_scatter of positions that window_max found with these axes.
void max_backward_cuda(const pool::Axes& axes, int64_t planes, DType t, const void* g, const int64_t* positions,
                       void* x);

// The same of images [n, c, h, w] whose channels lie innermost, as do the results'. False, with nothing done, for sizes
// that 32 bits do not hold.
bool resample_last_cuda(const pool::Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y);
bool resample_transposed_last_cuda(const pool::Axes& axes, int64_t images, int64_t channels, DType t, const void* y,
                                   void* x);
bool window_max_last_cuda(const pool::Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y,
                          int64_t* positions);
bool max_backward_last_cuda(const pool::Axes& axes, int64_t images, int64_t channels, DType t, const void* g,
                            const int64_t* positions, void* x);

}  // namespace strata
