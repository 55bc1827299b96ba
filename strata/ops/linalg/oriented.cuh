#pragma once
// The signs of eigen- and singular vectors. Runs on the processor in tests.

#include <cstdint>

#include "strata/cuda/tile/shared_tile.cuh"

namespace strata::linalg {

/// Vectors of matrices as a library gives them and as they are wanted: element i of vector j at `from[j * step + i *
/// apart]`, and at `to[i * beyond + j * stride]`.
template <class T, class From = T>
struct Vectors {
  const From* from;
  T* to;
  int count, length;
  int64_t step, apart, matrix;  // between vectors, elements and matrices of `from`
  int64_t stride, beyond;       // between vectors and elements of `to`, whose matrices are dense
};

/// Whether the first of the largest elements of a vector is negative; all lanes of a warp ask.
template <class T>
__device__ bool points_down(const T* v, int length, int64_t apart) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T most = -1;
  int place = length;
  bool down = false;
  for (int i = lane; i < length; i += 32) {
    const T x = v[i * apart], size = x < T(0) ? -x : x;
    if (size > most) most = size, place = i, down = x < T(0);
  }
  for (int o = 16; o > 0; o /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, most, o);
    const int its = __shfl_xor_sync(0xffffffffu, place, o);
    const int turned = __shfl_xor_sync(0xffffffffu, static_cast<int>(down), o);
    if (other > most || (other == most && its < place)) most = other, place = its, down = turned != 0;
  }
  return down;
}

template <class T, class From>
__device__ void put(const Vectors<T, From>& all, int64_t matrix, int j, bool down) {
  const From* const v = all.from + matrix * all.matrix + j * all.step;
  T* const to = all.to + matrix * all.count * all.length + j * all.stride;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < all.length; i += 32)
    to[i * all.beyond] = static_cast<T>(down ? -v[i * all.apart] : v[i * all.apart]);
}

/// Vector j of `lead` is turned so that its largest element is positive, and with it vector j < `pairs` of `other`,
/// whose further vectors are turned by themselves; `other` may have none. A warp has a vector of each. `Where` keeps a
/// test's kernel apart from the library's.
template <class T, class From = T, class Where = void>
__global__ void __launch_bounds__(256)
    oriented_kernel(Vectors<T, From> lead, Vectors<T, From> other, int pairs, int64_t total) {
  const int most = lead.count > other.count ? lead.count : other.count;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32, matrix = item / most;
  const int j = static_cast<int>(item % most);
  if (item >= total) return;
  bool down = false;
  if (j < lead.count) {
    down = points_down(lead.from + matrix * lead.matrix + j * lead.step, lead.length, lead.apart);
    put(lead, matrix, j, down);
  }
  if (j >= other.count) return;
  if (j >= pairs) down = points_down(other.from + matrix * other.matrix + j * other.step, other.length, other.apart);
  put(other, matrix, j, down);
}

}  // namespace strata::linalg
